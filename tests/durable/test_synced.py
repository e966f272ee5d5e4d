"""What must survive a power loss is on disk when the call returns, and before it gets its final name."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from palestra.durable import Inside, LineWriter, keep_lines, write_whole
from palestra.durable.checkpoint import Checkpoints
from palestra.durable.ledger import Ledger
from palestra.errors import SchemaError


def content(path: str | Path) -> object:
    """What a sync keeps: the bytes of a file, the names in a folder."""
    return sorted(os.listdir(path)) if os.path.isdir(path) else Path(path).read_bytes()


@pytest.fixture
def on_disk(monkeypatch: pytest.MonkeyPatch) -> dict[int, object]:
    """Inode → its content when it was synced last. A rename of what is not on disk fails."""
    synced: dict[int, object] = {}
    sync, rename = os.fsync, os.rename

    def fsync(descriptor: int) -> None:
        synced[os.fstat(descriptor).st_ino] = content(f"/proc/self/fd/{descriptor}")
        sync(descriptor)

    def renamed(
        source: str | Path, target: str | Path, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        path = Path(source) if src_dir_fd is None else Path(f"/proc/self/fd/{src_dir_fd}") / source
        # What is moved out of the way may be damaged.
        if "discarded" not in str(target):
            assert missing(path, synced) == []
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    for name, replacement in (("fsync", fsync), ("rename", renamed), ("replace", renamed)):
        monkeypatch.setattr(os, name, replacement)
    return synced


def missing(path: Path, synced: dict[int, object]) -> list[str]:
    """The files and folders at ``path`` that differ from what was synced."""
    return [str(each) for each in (path, *path.rglob("*")) if synced.get(each.stat().st_ino) != content(each)]


def write_lines(folder: Path) -> None:
    with LineWriter(folder / "lines") as writer:
        writer.write(b"first")
        writer.sync()
        writer.write(b"last")


def keep_some_lines(folder: Path) -> None:
    def wanted(line: bytes) -> bool:
        if line == b"?\n":
            raise SchemaError("damaged")
        return line != b"9\n"

    (folder / "lines").write_bytes(b"1\n?\n9\n")
    keep_lines(Inside(folder) / "lines", wanted)


def commit(folder: Path) -> None:
    store = Checkpoints(folder)
    for step in range(4):
        draft = store.begin(step)
        (draft / "deep" / "er").mkdir(parents=True)
        (draft / "deep" / "er" / "weights").write_bytes(b"x" * step)
        store.commit(step, {})
    store.call_best(3)


def keep_books(folder: Path) -> None:
    with Ledger(folder / "ledger") as ledger:
        ledger.issue("a")
        ledger.commit(0)
        position = ledger.position
        ledger.issue("b")
    with Ledger(folder / "ledger") as ledger:
        ledger.rewind(position)
        ledger.issue("c")
        ledger.sync()


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: write_whole(folder / "file", b"x"),
        lambda folder: write_whole(Inside(folder) / "file", b"x"),
        write_lines,
        keep_some_lines,
        commit,
        keep_books,
    ],
    ids=["write_whole", "inside", "LineWriter", "keep_lines", "checkpoints", "ledger"],
)
def test_what_was_written_is_on_disk(tmp_path: Path, on_disk: dict[int, object], write: Callable[[Path], None]) -> None:
    write(tmp_path)
    assert os.listdir(tmp_path)
    # A file that is only appended to is made once, and its folder is synced with what is replaced there.
    assert set(missing(tmp_path, on_disk)) <= ({str(tmp_path)} if write in (write_lines, keep_books) else set())
