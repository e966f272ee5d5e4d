"""Packs of tasks: the same tasks come back, from tar and Parquet, and nothing leads out of the folder."""

import io
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from tests.worlds.harbor.folders import STEP_FILES, STEPS, write

from palestra.errors import UsageError
from palestra.sandbox.unpacking import Room
from palestra.worlds.harbor.packs import pack_tasks
from palestra.worlds.harbor.reading import find_tasks
from palestra.worlds.harbor.task import tree_digest


@pytest.fixture
def tasks(tmp_path: Path) -> list[Path]:
    write(tmp_path / "tasks/one", {"tests/data/task.toml": "not a task of its own\n"})
    (tmp_path / "tasks/one/environment/link").symlink_to("Dockerfile")
    (tmp_path / "tasks/one/environment/.wh.Dockerfile").write_text("in a layer of an image this would remove the Dockerfile")
    write(tmp_path / "tasks/two", STEP_FILES, STEPS)
    return find_tasks(tmp_path / "tasks")


@pytest.mark.parametrize("name", ["set.tar", "set.tar.gz", "set.tgz", "set.parquet"])
def test_packed_tasks_come_back(name: str, tmp_path: Path, tasks: list[Path]) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    pack_tasks(tasks, tmp_path / name)
    found = find_tasks(tmp_path / name)
    assert [folder.name for folder in found] == ["one", "two"]
    assert [tree_digest(folder) for folder in found] == [tree_digest(folder) for folder in tasks]
    assert find_tasks(tmp_path / name) == found, "a pack is unpacked once"
    pack_tasks(found, tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()
    with pytest.raises(UsageError, match="exists already"):
        pack_tasks(tasks, tmp_path / name)


def test_what_is_no_pack_ends_in_a_sentence(tmp_path: Path, tasks: list[Path]) -> None:
    for name, says in (("a.tar", "not a tar archive"), ("a.parquet", "not a Parquet file")):
        (tmp_path / name).write_bytes(b"something else")
        with pytest.raises(UsageError, match=says):
            find_tasks(tmp_path / name)
    with tarfile.open(tmp_path / "empty.tar", "w"):
        pass
    with pytest.raises(UsageError, match="has no Harbor task"):
        find_tasks(tmp_path / "empty.tar")
    with pytest.raises(UsageError, match="is not the name of a pack"):
        pack_tasks(tasks, tmp_path / "set.zip")
    with pytest.raises(UsageError, match="or a pack"):
        find_tasks(tmp_path / "nothing.tar")


def _archive(*members: tuple[str, bytes, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content, link in members:
            member = tarfile.TarInfo(name)
            member.size, member.linkname = len(content), link
            member.type = tarfile.SYMTYPE if link else tarfile.REGTYPE
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def write_rows(path: Path, columns: Mapping[str, Sequence[object]]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table(columns), path)


def test_nothing_in_a_pack_leads_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "up.tar").write_bytes(_archive(("../evil", b"x", "")))
    with pytest.raises(UsageError, match="leads out"):
        find_tasks(tmp_path / "up.tar")
    out = tmp_path / "out"
    out.mkdir()
    (tmp_path / "link.tar").write_bytes(_archive(("task", b"", str(out)), ("task/task.toml", b"", "")))
    with pytest.raises(UsageError):
        find_tasks(tmp_path / "link.tar")
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        *(({"path": [path], "task_binary": [b""]}, "without a task") for path in ("../up", "/up", "//up", "a\0b", None)),
        ({"path": ["a"], "task_binary": [None]}, "a row without a task"),
        ({"path": ["a"], "task_binary": [b"x"]}, "rows.parquet: a is not a tar archive"),
        ({"path": ["a", "a"], "task_binary": [_archive(), _archive()]}, "two tasks a"),
        ({"path": ["a", "./a"], "task_binary": [_archive(), _archive()]}, "two tasks ./a"),
        ({"path": ["a", "a/b"], "task_binary": [_archive(), _archive()]}, "a task inside another one: a/b"),
        ({"path": ["a/b/c", "d", "a"], "task_binary": [_archive()] * 3}, "a task inside another one: a"),
        ({"task": ["a"]}, "no column path"),
    ],
)
def test_malformed_rows(columns: dict[str, list[object]], says: str, tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.parquet", columns)
    with pytest.raises(UsageError, match=says):
        find_tasks(tmp_path / "rows.parquet")
    assert not any((tmp_path / "home/harbor/packs").iterdir()), "a pack that cannot be read leaves nothing"


def test_the_rows_of_a_pack_share_its_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [_archive(("task.toml", b"x" * 100, "")) for _ in range(3)]
    write_rows(tmp_path / "set.parquet", {"path": ["a", "b", "c"], "task_binary": rows})
    monkeypatch.setattr("palestra.worlds.harbor.packs.Room", lambda: Room(bytes=250))
    with pytest.raises(UsageError, match=r"set.parquet: c .*too large"):
        find_tasks(tmp_path / "set.parquet")
    assert not list((tmp_path / "home").rglob("task.toml")), "nothing is left of a pack that was refused"


def test_a_pack_that_cannot_be_written_leaves_nothing(
    tmp_path: Path, tasks: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(*_: object, **__: object) -> bytes:
        raise OSError("no space left")

    monkeypatch.setattr("palestra.worlds.harbor.packs.gzip.compress", half)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(OSError, match="no space"):
        pack_tasks(tasks, tmp_path / "set.tgz")
    monkeypatch.setattr("pathlib.Path.rename", half)
    with pytest.raises(OSError, match="no space"):
        pack_tasks(tasks, tmp_path / "set.tar")
    assert sorted(tmp_path.iterdir()) == before
