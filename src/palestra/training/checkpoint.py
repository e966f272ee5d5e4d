"""Checkpoints that are there whole or not at all. Standard library only; what is in them is the caller's business.

::

    run/checkpoints/
      step-00000008/  …files…, manifest.json
      step-00000016/
      latest                      the newest one's name, for people and scripts

A checkpoint is written into a temporary folder, every file is hashed and synced, the manifest is written last, and a rename
makes it appear. The manifest's first line is the SHA-256 of the rest, so a flipped bit in it is seen too. Whoever resumes takes
the newest checkpoint whose every file has the size and the hash that its manifest says; ``latest`` is only a hint. At least two
are kept, so that there is one to go back to.
"""

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from palestra.errors import SchemaError, UsageError

__all__ = ["Checkpoints", "FileEntry", "Manifest", "sync_file", "sync_folder"]

_MANIFEST = "manifest.json"
_CHUNK = 1 << 20


class FileEntry(msgspec.Struct, frozen=True):
    """What a file must be."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What a checkpoint consists of."""

    step: int
    files: dict[str, FileEntry]
    notes: dict[str, Any] = {}
    """Whatever the trainer must know beside the files: the ledger's position, statistics, configuration."""


class Checkpoints:
    """A folder of checkpoints. One process commits; others may write files into what ``begin`` returned."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 2:
            raise UsageError(f"at least 2 checkpoints are kept, got keep={keep}: a single one leaves nothing to go back to")
        self.folder = folder
        self.keep = keep

    def begin(self, step: int) -> Path:
        """An empty temporary folder for ``step``. What an earlier crash left behind is removed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".*-*"):
            shutil.rmtree(leftover)
        folder = self.folder / f".writing-{step:08d}"
        folder.mkdir()
        return folder

    def commit(self, step: int, notes: dict[str, Any] | None = None) -> Path:
        """Make what was written for ``step`` a checkpoint, then drop the oldest ones."""
        writing = self.folder / f".writing-{step:08d}"
        files = {str(path.relative_to(writing)): _entry(path) for path in _files(writing)}
        body = msgspec.json.encode(Manifest(step, files, notes or {}), order="deterministic")
        (writing / _MANIFEST).write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
        for path in _files(writing):
            sync_file(path)
        for folder in [path for path in writing.rglob("*") if path.is_dir()]:
            sync_folder(folder)
        sync_folder(writing)
        final = self.folder / f"step-{step:08d}"
        if final.exists():
            self._discard(final)
        writing.rename(final)
        sync_folder(self.folder)
        self._point_to(final)
        for old in self.paths()[self.keep :]:
            self._discard(old)
        return final

    def paths(self) -> list[Path]:
        """All that look like checkpoints, the newest first, verified or not."""
        return sorted(self.folder.glob("step-*"), reverse=True)

    def newest(self, accept: Callable[[Manifest], bool] = lambda _: True) -> tuple[Path, Manifest] | None:
        """The newest checkpoint that verifies and that ``accept`` likes; ``None`` if there is none."""
        for path in self.paths():
            try:
                manifest = verify(path)
            except SchemaError:
                continue
            if accept(manifest):
                return path, manifest
        return None

    def _point_to(self, final: Path) -> None:
        pointer = self.folder / "latest.new"
        pointer.write_text(final.name + "\n")
        sync_file(pointer)
        pointer.rename(self.folder / "latest")
        sync_folder(self.folder)

    def _discard(self, path: Path) -> None:
        # Renamed first: a half-removed folder must not look like a checkpoint.
        gone = path.rename(self.folder / f".discarded-{path.name}")
        shutil.rmtree(gone)


def verify(path: Path) -> Manifest:
    """The manifest of the checkpoint at ``path``, if the manifest and all its files are what they should be."""
    try:
        digest, _, body = (path / _MANIFEST).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise SchemaError(f"{path.name}: the manifest does not have its own hash")
        manifest = msgspec.json.decode(body, type=Manifest)
        for name, expected in manifest.files.items():
            if _entry(path / name) != expected:
                raise SchemaError(f"{path.name}: {name} is not the file that was written")
    except (OSError, msgspec.MsgspecError) as error:
        raise SchemaError(f"{path.name}: {error}") from None
    return manifest


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _entry(path: Path) -> FileEntry:
    hasher, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return FileEntry(size, hasher.hexdigest())


def sync_file(path: Path) -> None:
    """Wait until the file's bytes are on the disk."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Wait until the folder's names are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
