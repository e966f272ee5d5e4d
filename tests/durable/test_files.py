"""Files are replaced atomically and have one writer."""

import os
from pathlib import Path

import pytest

from palestra.durable import replacing, write_whole
from palestra.errors import UsageError


def test_the_file_appears_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    target = tmp_path / "new" / "page.html"
    with replacing(target) as draft:
        draft.write_text("half")
        assert not target.exists()
        draft.write_text("whole")
    assert target.read_text() == "whole"
    write_whole(target, b"again")
    assert target.read_bytes() == b"again"
    assert [file.name for file in target.parent.iterdir()] == ["page.html"]


def test_a_failure_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(target) as draft:
        _ = draft.write_text("half") / 0
    assert target.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_the_second_writer_is_refused_and_the_first_one_continues(tmp_path: Path) -> None:
    target = tmp_path / "page.html"
    with replacing(target) as draft:
        draft.write_text("first")
        with pytest.raises(UsageError, match=r"page\.html is in use by another process: .*choose another file") as refused:
            write_whole(target, b"second")
        assert "\n" not in str(refused.value)
    assert target.read_text() == "first"
    write_whole(target, b"second")
    assert target.read_text() == "second"


def test_links_devices_and_folders(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_whole(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"
    write_whole(Path(os.devnull), b"gone")
    assert not Path(os.devnull).is_file()
    with pytest.raises(UsageError, match="is a folder"):
        write_whole(tmp_path, b"")
    with pytest.raises(UsageError, match=r"cannot write .*: .*choose another file"):
        write_whole(real / "below" / "a file", b"")


def fail_after_removing(draft: Path) -> None:
    draft.unlink()
    raise ZeroDivisionError


def test_an_error_is_raised_even_if_the_draft_has_gone(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), replacing(tmp_path / "page.html") as draft:
        fail_after_removing(draft)
    assert list(tmp_path.iterdir()) == []


def test_a_draft_of_a_killed_process_is_emptied(tmp_path: Path) -> None:
    (tmp_path / ".page.html.part").write_text("what a killed process has left, and more of it")
    with replacing(tmp_path / "page.html") as draft, draft.open("ab") as file:
        file.write(b"new")
    assert (tmp_path / "page.html").read_text() == "new"
