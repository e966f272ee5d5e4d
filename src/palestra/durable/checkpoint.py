"""Atomic checkpoints: each exists completely or not at all. Standard library only; the caller decides what is in them.

::

    run/checkpoints/
      step-00000008/  …files…, manifest.json
      step-00000016/
      latest                      name of the newest one, for people and scripts
      best                        name of the one that the caller called the best, if any; it is never removed

A checkpoint is written into a temporary folder. Every file is hashed and synced, the manifest is written last, and a rename
makes the checkpoint appear. The manifest's first line is the SHA-256 of the rest, so a flipped bit in it is detected too. A run
resumes from the newest checkpoint whose files all have the size and hash in its manifest; ``latest`` is only a hint. At least
two are kept, so that an older one remains if the newest is damaged.

The hashes detect damage, not malice: an attacker can recompute them. Therefore nothing in a checkpoint is unpickled or run, no
link in it is followed, and the step in a manifest must be that of its folder's name. Other names in the folder (an archive,
what rsync or NFS leave behind) belong to the user and stay.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from palestra.durable import Inside, sync_file, sync_folder
from palestra.errors import SchemaError, UsageError

__all__ = ["Checkpoints", "FileEntry", "Manifest", "verify"]

_MANIFEST = "manifest.json"
_BEST = "best"
_CHUNK = 1 << 20
_NAME = re.compile(r"step-(\d{8,12})")
_LEFTOVER = re.compile(r"\.(writing-\d{8,12}|discarded-step-\d{8,12})")
"""Folders that a process leaves behind if it is killed while it writes or removes a checkpoint."""
_LONGEST_NAME = 64


class FileEntry(msgspec.Struct, frozen=True):
    """Expected size and hash of a file."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a checkpoint."""

    step: int
    files: dict[str, FileEntry]
    notes: dict[str, Any] = {}
    """Data that the trainer needs besides the files: the ledger's position, statistics, configuration."""


class Checkpoints:
    """A folder of checkpoints. One process commits; others may write files into the folder that ``begin`` returned."""

    def __init__(self, folder: Path | Inside, keep: int = 2) -> None:
        if keep < 2:
            raise UsageError(f"at least 2 checkpoints are kept, got keep={keep}: with 1 there is none to go back to")
        self._inside = folder if isinstance(folder, Inside) else Inside(folder)
        self.folder = self._inside.path
        self.keep = keep

    def begin(self, step: int) -> Path:
        """Return an empty temporary folder for ``step``. Remove what an earlier crash left behind."""
        self._inside.mkdir()
        for name in filter(_LEFTOVER.fullmatch, self._inside.names()):
            (self._inside / name).remove()
        writing = self._inside / f".writing-{step:08d}"
        writing.mkdir()
        return writing.checked()

    def commit(self, step: int, notes: dict[str, Any] | None = None, *, written: Mapping[str, FileEntry] | None = None) -> Path:
        """Turn the files written for ``step`` into a checkpoint, then remove the oldest ones.

        ``written`` names files that were hashed while they were written; the others are read and hashed now.
        """
        inside = self._inside / f".writing-{step:08d}"
        writing = inside.checked()
        hashed = written or {}
        names = {str(path.relative_to(writing)): path for path in _files(writing)}
        files = {name: hashed.get(name) or _entry(inside / name) for name in names}
        body = msgspec.json.encode(Manifest(step, files, notes or {}), order="deterministic")
        (writing / _MANIFEST).write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        for path in _files(writing):
            sync_file(path)
        for folder in [path for path in writing.rglob("*") if path.is_dir()]:
            sync_folder(folder)
        sync_folder(writing)
        final = self._inside / f"step-{step:08d}"
        if final.name in self._steps():
            self._discard(final.name)
        elif final.exists():
            final.rename(final.aside().name)  # a stray file: somebody may need it
        inside.rename(final.name)
        sync_folder(self.folder)
        self._write_name("latest", final.name)
        best = self.best()
        for old in [path.name for path in self.paths()[self.keep :] if path != best]:
            self._discard(old)
        return final.path

    def best(self) -> Path | None:
        """Return the checkpoint that ``call_best`` named, verified or not; ``None`` if there is none."""
        try:
            with (self._inside / _BEST).open() as file:
                name = file.read(_LONGEST_NAME).decode("ascii", "replace").strip()
        except (OSError, UsageError):
            return None
        return self.folder / name if name in self._steps() else None

    def call_best(self, step: int) -> None:
        """Keep the checkpoint of ``step`` until another one is the best."""
        self._write_name(_BEST, f"step-{step:08d}")

    def paths(self) -> list[Path]:
        """Return all folders that look like checkpoints, the newest first, verified or not."""
        return [self.folder / name for name in self._steps()]

    def newest(self, accept: Callable[[Path, Manifest], bool] = lambda *_: True) -> tuple[Path, Manifest] | None:
        """Return the newest checkpoint that verifies and that ``accept`` accepts; ``None`` if there is none."""
        for name in self._steps():
            try:
                manifest = verify(self._inside / name)
            except SchemaError:
                continue
            if accept(self.folder / name, manifest):
                return self.folder / name, manifest
        return None

    def _steps(self) -> list[str]:
        """Return the names of the folders that look like checkpoints, the newest first. Links and files do not."""
        numbers = {name: int(match[1]) for name in self._inside.names() if (match := _NAME.fullmatch(name))}
        folders = [name for name in numbers if stat.S_ISDIR((self._inside / name).stat().st_mode)]
        return sorted(folders, key=lambda name: numbers[name], reverse=True)

    def _write_name(self, pointer: str, name: str) -> None:
        new = self._inside / f"{pointer}.new"
        new.remove()
        with new.open("xb") as file:
            file.write(name.encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        target = self._inside / pointer
        if target.exists() and stat.S_ISDIR(target.stat().st_mode):
            target.rename(target.aside().name)
        new.rename(pointer)  # a link of this name is replaced, and what it leads to stays
        sync_folder(self.folder)

    def _discard(self, name: str) -> None:
        # Renamed first, because a half-removed folder must not look like a checkpoint.
        gone = self._inside / f".discarded-{name}"
        gone.remove()
        (self._inside / name).rename(gone.name)
        gone.remove()


def verify(path: Path | Inside) -> Manifest:
    """Return the manifest of the checkpoint at ``path``. Raise ``SchemaError`` if it or one of its files is damaged."""
    folder = path if isinstance(path, Inside) else Inside(path)
    try:
        digest, _, body = (folder / _MANIFEST).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise SchemaError(f"{folder.name}: the manifest does not match its own hash")
        manifest = msgspec.json.decode(body, type=Manifest)
        if folder.name != f"step-{manifest.step:08d}":
            raise SchemaError(f"{folder.name}: the manifest is that of step {manifest.step}")
        for name, expected in manifest.files.items():
            if not _is_as_written(folder, name, expected):
                raise SchemaError(f"{folder.name}: {name} is not the file that was written")
    except (OSError, UsageError, msgspec.MsgspecError, RecursionError) as error:
        raise SchemaError(f"{folder.name}: {error}") from None
    return manifest


def _is_as_written(folder: Inside, name: str, expected: FileEntry) -> bool:
    """Compare sizes first: a file of another size need not be read."""
    try:
        return (folder / name).stat().st_size == expected.size and _entry(folder / name) == expected
    except UsageError:  # a link, a folder or a pipe, or a name that leads out: the manifest may come from a stranger
        return False


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _entry(path: Inside) -> FileEntry:
    hasher, size = hashlib.sha256(), 0
    with path.open() as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return FileEntry(size, hasher.hexdigest())
