"""Inside a folder no link is followed, whoever reads or writes."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palestra.durable import Inside, LineWriter, keep_lines, read_lines, replacing, write_whole
from palestra.durable.ledger import Ledger, read_ledger
from palestra.errors import UsageError

SECRET = b"a line without a line break"

Use = Callable[[Inside], object]


def write_line(file: Inside) -> None:
    with LineWriter(file) as writer:
        writer.write(b"x")


def replace(file: Inside) -> None:
    with replacing(file) as draft:
        draft.write_bytes(b"x")


def make_ledger(file: Inside) -> None:
    Ledger(file).close()


READERS: dict[str, Use] = {
    "read_bytes": Inside.read_bytes,
    "read_lines": lambda file: list(read_lines(file)),
    "read_ledger": read_ledger,
    "is_file": Inside.is_file,
    "checked": Inside.checked,
}
WRITERS: dict[str, Use] = {
    "LineWriter": write_line,
    "write_whole": lambda file: write_whole(file, b"x"),
    "replacing": replace,
    "keep_lines": lambda file: keep_lines(file, lambda _: True),
    "Ledger": make_ledger,
    "open": lambda file: file.open("wb").close(),
}


@pytest.mark.parametrize("use", [*READERS.values(), *WRITERS.values()], ids=[*READERS, *WRITERS])
@pytest.mark.parametrize("kind", ["file", "nothing", "folder", "behind"])
def test_a_link_is_refused_by_name_and_what_it_leads_to_is_unchanged(tmp_path: Path, use: Use, kind: str) -> None:
    run, secret = tmp_path / "run", tmp_path / "elsewhere" / "name"
    run.mkdir()
    secret.parent.mkdir()
    secret.write_bytes(SECRET)
    name = "name"
    if kind == "behind":
        (run / "folder").symlink_to(secret.parent)
        name = "folder/name"
    else:
        target = {"file": secret, "nothing": secret.with_name("new"), "folder": secret.parent}[kind]
        (run / name).symlink_to(target)
    with pytest.raises(UsageError, match=r"is a link\. A folder may be reached by a link, but no link inside"):
        use(Inside(run) / name)
    assert secret.read_bytes() == SECRET
    assert os.listdir(secret.parent) == ["name"]


@pytest.mark.parametrize("use", [*READERS.values(), *WRITERS.values()], ids=[*READERS, *WRITERS])
def test_the_folder_itself_may_be_reached_by_a_link(tmp_path: Path, use: Use) -> None:
    (tmp_path / "big disk").mkdir()
    (tmp_path / "big disk" / "name").write_bytes(b"")
    (tmp_path / "run").symlink_to(tmp_path / "big disk")
    use(Inside(tmp_path / "run") / "name")


@pytest.mark.parametrize("use", [*READERS.values(), *WRITERS.values()], ids=[*READERS, *WRITERS])
@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path: Path, use: Use, kind: str) -> None:
    if use in (Inside.is_file, Inside.checked):
        pytest.skip("they ask")
    (tmp_path / "name").mkdir() if kind == "folder" else os.mkfifo(tmp_path / "name")
    with pytest.raises(UsageError, match="name is a"):
        use(Inside(tmp_path) / "name")


@pytest.mark.parametrize("use", [use for name, use in WRITERS.items() if name in ("LineWriter", "Ledger", "open")])
def test_a_file_with_a_second_name_elsewhere_is_not_written_into(tmp_path: Path, use: Use) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    (tmp_path / "run").mkdir()
    os.link(secret, tmp_path / "run" / "name")
    with pytest.raises(UsageError, match="hard link"):
        use(Inside(tmp_path / "run") / "name")
    assert secret.read_bytes() == SECRET


def test_a_file_that_is_replaced_leaves_the_one_with_the_second_name_alone(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(SECRET)
    (tmp_path / "run").mkdir()
    os.link(tmp_path / "secret", tmp_path / "run" / "name")
    write_whole(Inside(tmp_path / "run") / "name", b"new")
    assert (tmp_path / "secret").read_bytes() == SECRET
    assert (tmp_path / "run" / "name").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../secret", "a/../../b", ".", "a//b", "a\0b"])
def test_a_name_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="is not the name of a file inside"):
        Inside(tmp_path) / name


def test_what_is_made_inside_is_for_this_user_alone(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        write_line(Inside(tmp_path / "run") / "deep/lines")
        write_whole(Inside(tmp_path / "run") / "whole", b"x")
    finally:
        os.umask(old)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    assert modes == {"run": 0o700, "run/deep": 0o700, "run/deep/lines": 0o600, "run/whole": 0o600}


def test_removing_a_link_removes_the_link_and_removing_a_folder_follows_none(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_bytes(SECRET)
    run = Inside(tmp_path / "run")
    (run / "folder").mkdir()
    (run / "folder").path.joinpath("link").symlink_to(outside)
    (run / "link").path.symlink_to(outside)
    for name in ("folder", "link", "absent"):
        (run / name).remove()
    assert run.names() == []
    assert (outside / "kept").read_bytes() == SECRET


def test_a_folder_and_a_file_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    door = Inside(tmp_path)
    for _ in range(2):
        (door / "folder").mkdir()
        (door / "new" / "deep").mkdir()
    assert (tmp_path / "new" / "deep").is_dir()
    with pytest.raises(UsageError, match="file is not a folder, but one is expected here"):
        (door / "file").mkdir()
    kinds = {
        name: ((door / name).exists(), (door / name).is_file(), (door / name).is_dir()) for name in ("folder", "file", "none")
    }
    assert kinds == {"folder": (True, False, True), "file": (True, True, False), "none": (False, False, False)}
