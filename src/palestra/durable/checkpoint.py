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

The hashes detect damage, not malice: an attacker can recompute them. Therefore nothing in a checkpoint is unpickled or run.
"""

import hashlib
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from palestra.durable import sync_file, sync_folder
from palestra.errors import SchemaError, UsageError

__all__ = ["Checkpoints", "FileEntry", "Manifest", "verify"]

_MANIFEST = "manifest.json"
_BEST = "best"
_CHUNK = 1 << 20


class FileEntry(msgspec.Struct, frozen=True):
    """Expected size and hash of a file."""

    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The contents of a checkpoint."""

    step: int
    files: dict[str, FileEntry]
    notes: dict[str, Any] = {}
    """What the trainer needs besides the files: the ledger's position, statistics, configuration."""


class Checkpoints:
    """A folder of checkpoints. One process commits; others may write files into the folder that ``begin`` returned."""

    def __init__(self, folder: Path, keep: int = 2) -> None:
        if keep < 2:
            raise UsageError(f"at least 2 checkpoints are kept, got keep={keep}: with 1 there is none to go back to")
        self.folder = folder
        self.keep = keep

    def begin(self, step: int) -> Path:
        """Return an empty temporary folder for ``step``. Remove what an earlier crash left behind."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.folder.glob(".*-*"):
            shutil.rmtree(leftover)
        folder = self.folder / f".writing-{step:08d}"
        folder.mkdir()
        return folder

    def commit(self, step: int, notes: dict[str, Any] | None = None, *, written: Mapping[str, FileEntry] | None = None) -> Path:
        """Turn the files written for ``step`` into a checkpoint, then remove the oldest ones.

        ``written`` names files that were hashed while they were written; the others are read and hashed now.
        """
        writing = self.folder / f".writing-{step:08d}"
        known = written or {}
        names = {str(path.relative_to(writing)): path for path in _files(writing)}
        files = {name: known.get(name) or _entry(path) for name, path in names.items()}
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
        best = self.best()
        for old in [path for path in self.paths()[self.keep :] if path != best]:
            self._discard(old)
        return final

    def best(self) -> Path | None:
        """Return the checkpoint that ``call_best`` named, verified or not; ``None`` if there is none."""
        try:
            found = self.folder / (self.folder / _BEST).read_text().strip()
        except OSError:
            return None
        return found if found.is_dir() and found.parent == self.folder else None

    def call_best(self, step: int) -> None:
        """Keep the checkpoint of ``step`` until another one is the best."""
        self._write_name(_BEST, f"step-{step:08d}")

    def paths(self) -> list[Path]:
        """Return all folders that look like checkpoints, the newest first, verified or not."""
        return sorted(self.folder.glob("step-*"), reverse=True)

    def newest(self, accept: Callable[[Manifest], bool] = lambda _: True) -> tuple[Path, Manifest] | None:
        """Return the newest checkpoint that verifies and that ``accept`` accepts; ``None`` if there is none."""
        for path in self.paths():
            try:
                manifest = verify(path)
            except SchemaError:
                continue
            if accept(manifest):
                return path, manifest
        return None

    def _point_to(self, final: Path) -> None:
        self._write_name("latest", final.name)

    def _write_name(self, pointer: str, name: str) -> None:
        new = self.folder / f"{pointer}.new"
        new.write_text(name + "\n")
        sync_file(new)
        new.rename(self.folder / pointer)
        sync_folder(self.folder)

    def _discard(self, path: Path) -> None:
        # Renamed first, because a half-removed folder must not look like a checkpoint.
        gone = path.rename(self.folder / f".discarded-{path.name}")
        shutil.rmtree(gone)


def verify(path: Path) -> Manifest:
    """Return the manifest of the checkpoint at ``path``. Raise ``SchemaError`` if it or one of its files is damaged."""
    try:
        digest, _, body = (path / _MANIFEST).read_bytes().partition(b"\n")
        if hashlib.sha256(body).hexdigest().encode() != digest:
            raise SchemaError(f"{path.name}: the manifest does not match its own hash")
        manifest = msgspec.json.decode(body, type=Manifest)
        for name, expected in manifest.files.items():
            if not _is_inside(name) or not _looks_like(path / name, expected) or _entry(path / name) != expected:
                raise SchemaError(f"{path.name}: {name} is not the file that was written")
    except (OSError, msgspec.MsgspecError) as error:
        raise SchemaError(f"{path.name}: {error}") from None
    return manifest


def _is_inside(name: str) -> bool:
    """Whether ``name`` stays in the checkpoint's folder: the manifest may come from an untrusted source."""
    return not Path(name).is_absolute() and ".." not in Path(name).parts


def _looks_like(path: Path, expected: FileEntry) -> bool:
    """Whether ``path`` can be read to its end: a device or pipe cannot, and a file of another size is another file."""
    return path.is_file() and path.stat().st_size == expected.size


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _entry(path: Path) -> FileEntry:
    hasher, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            hasher.update(chunk)
            size += len(chunk)
    return FileEntry(size, hasher.hexdigest())
