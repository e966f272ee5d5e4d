"""Packs of Harbor tasks: one file in place of thousands of small ones.

A tar archive holds task folders at any depth. A Parquet file has one row per task, with the columns ``path`` and
``task_binary``, a tar archive of the task's folder; public sets of tasks have this form. A pack is unpacked once, into the
user's folder, under the hash of its content. It may be a stranger's, so no path in it leads out of that folder.
"""

import gzip
import hashlib
import io
import secrets
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from palestra.errors import MissingExtra, UsageError
from palestra.foundation.home import home_folder
from palestra.foundation.installation import how_to_install
from palestra.sandbox.roots import drafted
from palestra.sandbox.unpacking import Room, unpack_tar
from palestra.worlds.harbor.task import files_below

__all__ = ["is_pack", "pack_tasks", "unpacked"]

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.xz")
_COLUMNS = ("path", "task_binary")
_ROWS = 16
_TIME = 1_704_067_200
"""The time of every file in a pack, so that the same tasks give the same bytes."""


def is_pack(path: Path) -> bool:
    """Return whether ``path`` is a file whose ending is that of a pack."""
    return path.name.endswith((*_TARS, ".parquet")) and path.is_file()


def unpacked(pack: Path) -> Path:
    """Return the folder with the tasks of ``pack``, which is unpacked if that has not happened before.

    Raises:
        UsageError: The file is not a pack that can be read.
    """
    with pack.open("rb") as file:
        folder = home_folder("harbor") / "packs" / hashlib.file_digest(file, "sha256").hexdigest()
    if folder.is_dir():
        return folder
    with drafted(folder) as draft:
        if pack.suffix == ".parquet":
            _unpack_rows(pack, draft)
        else:
            with pack.open("rb") as file:
                unpack_tar(file, pack.name, draft)
    return folder


def _unpack_rows(pack: Path, draft: Path) -> None:
    room = Room()  # of the whole pack: a pack has any number of rows
    taken: set[PurePosixPath] = set()
    above: set[PurePosixPath] = set()
    for row in _rows(pack):
        path, content = (row[name] for name in _COLUMNS)
        inner = _place(path)
        if inner is None or not isinstance(content, bytes):
            raise UsageError(f"{pack.name} has a row without a task: path is {path!r}")
        if inner in taken:
            raise UsageError(f"{pack.name} has two tasks {path}")
        if inner in above or not taken.isdisjoint(inner.parents):  # a link in the upper task could lead anywhere
            raise UsageError(f"{pack.name} has a task inside another one: {path}")
        taken.add(inner)
        above.update(inner.parents)
        folder = draft / inner
        folder.mkdir(parents=True)
        unpack_tar(io.BytesIO(content), f"{pack.name}: {path}", folder, room)


def _place(path: object) -> PurePosixPath | None:
    """Return the path of a row, if it is one below the folder of the pack."""
    inner = PurePosixPath(path) if isinstance(path, str) and "\0" not in path else PurePosixPath()
    return inner if inner.parts and not inner.is_absolute() and ".." not in inner.parts else None


def _rows(pack: Path) -> Iterator[dict[str, Any]]:
    arrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(pack) as file:
            if missing := [name for name in _COLUMNS if name not in file.schema_arrow.names]:
                raise UsageError(f"{pack.name} has no column {missing[0]}: a pack of tasks has {' and '.join(_COLUMNS)}")
            for batch in file.iter_batches(batch_size=_ROWS, columns=list(_COLUMNS)):
                yield from batch.to_pylist()
    except (arrow.ArrowInvalid, OSError) as error:
        raise UsageError(f"{pack.name} is not a Parquet file: {error}") from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise MissingExtra(f"a Parquet pack needs pyarrow: {how_to_install('data')}") from None
    return pyarrow, parquet


def pack_tasks(folders: Sequence[Path], pack: Path) -> None:
    """Write the tasks in ``folders`` to the new file ``pack``. The same tasks give the same bytes.

    Raises:
        UsageError: The file exists, its ending is not that of a pack, or two tasks have the same name.
    """
    if pack.exists():
        raise UsageError(f"{pack} exists already: name a new file")
    names = [folder.resolve().name for folder in folders]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise UsageError(f"two tasks have the name {twice[0]}: in a pack every task has its own, so rename one of the folders")
    if not pack.name.endswith((".tar", ".tar.gz", ".tgz", ".parquet")):
        raise UsageError(f'"{pack.name}" is not the name of a pack: it ends with .tar, .tar.gz or .parquet')
    draft = pack.with_name(f".{pack.name}-{secrets.token_hex(4)}")
    try:
        _write(dict(zip(names, folders, strict=True)), draft, pack.suffix)
        draft.rename(pack)
    finally:
        draft.unlink(missing_ok=True)


def _write(folders: dict[str, Path], draft: Path, suffix: str) -> None:
    if suffix == ".parquet":
        arrow, parquet = _pyarrow()
        tasks = [gzip.compress(_tar({"": folder}), mtime=0) for folder in folders.values()]
        parquet.write_table(arrow.table(dict(zip(_COLUMNS, (list(folders), tasks), strict=True))), draft, compression="none")
    else:
        content = _tar(folders)
        draft.write_bytes(content if suffix == ".tar" else gzip.compress(content, mtime=0))


def _tar(folders: dict[str, Path]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, folder in folders.items():
            for path, _ in files_below(folder):
                member = archive.gettarinfo(str(folder / path), str(PurePosixPath(name, path)))
                member.mtime, member.uid, member.gid, member.uname, member.gname = _TIME, 0, 0, "", ""
                with (folder / path).open("rb") if member.isreg() else io.BytesIO() as content:
                    archive.addfile(member, content)
    return out.getvalue()
