"""The one door to what is inside a folder: runs, checkpoints, imports and indexes are read and written through it.

The path that a user types may itself be a link or lie behind one. Inside the folder no link is followed, because the folder may
come from a stranger: a link ``report.json`` could lead the writer to a file of the user, and ``000000-0.png`` the reader. It is
refused in words. A name that is a folder, a pipe or a device where a file is expected is refused, too, and so is writing into a
file that has a second name (a hard link), which may lie outside.

An ``Inside`` has the methods of ``Path`` that callers need, so a function that takes either serves both: a ``Path`` is what the
user named, and links are followed; an ``Inside`` is part of a folder, and none is. Every component is opened relative to the
descriptor of the one before, so a folder that is replaced by a link at the same moment is refused as well. Only ``checked`` is
a test before the use: it is for libraries that open paths themselves.

What is created here is private to the user (0600, 0700), because transcripts may be confidential.
"""

import errno
import itertools
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from palestra.errors import UsageError

__all__ = ["PRIVATE_FILE", "PRIVATE_FOLDER", "Inside", "name_file", "named"]

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
_WRITING = os.O_WRONLY | os.O_RDWR


@dataclass(frozen=True)
class Inside:
    """A name inside ``root``, or ``root`` itself. Making one touches no file."""

    root: Path
    """The folder as the user named it. Links that lead to it are followed."""
    parts: tuple[str, ...] = ()

    def __truediv__(self, name: str) -> "Inside":
        parts = name.split("/")
        if not all(parts) or {".", ".."}.intersection(parts) or "\0" in name:
            raise UsageError(f"{name!r} is not the name of a file inside {self}")
        return Inside(self.root, (*self.parts, *parts))

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Path:
        """The path for messages. Whoever opens it follows links: see ``checked``."""
        return self.root.joinpath(*self.parts)

    @property
    def name(self) -> str:
        """The last component."""
        return self.path.name

    @property
    def parent(self) -> "Inside":
        """The folder that the name is in."""
        return Inside(self.root, self.parts[:-1])

    def with_name(self, name: str) -> "Inside":
        """Return another name in the same folder."""
        return self.parent / name

    # ------------------------------------------------------------------------------------------------------------ looking

    def stat(self) -> os.stat_result:
        """Return the status of the name itself: a link is not followed. Raise ``FileNotFoundError`` if there is nothing."""
        if not self.parts:
            return self.root.stat()
        with self.parent.opened() as folder:
            return os.stat(self.parts[-1], dir_fd=folder, follow_symlinks=False)

    def exists(self) -> bool:
        """Whether there is something of this name. A link counts, wherever it leads: opening it will refuse it."""
        try:
            self.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_file(self) -> bool:
        """Whether there is a file of this name. Raise ``UsageError`` for a link."""
        return stat.S_ISREG(self._kind())

    def is_dir(self) -> bool:
        """Whether there is a folder of this name. Raise ``UsageError`` for a link."""
        return stat.S_ISDIR(self._kind())

    def _kind(self) -> int:
        try:
            mode = self.stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return 0
        if stat.S_ISLNK(mode):
            raise self._link()
        return mode

    def names(self) -> list[str]:
        """Return the sorted names in this folder, links and hidden ones included; none if the folder does not exist."""
        try:
            with self.opened() as folder:
                return sorted(os.listdir(folder))
        except FileNotFoundError:
            return []

    def checked(self) -> Path:
        """Return the path for a library that opens paths itself. Raise ``UsageError`` if a component inside is a link."""
        for length in range(1, len(self.parts) + 1):
            Inside(self.root, self.parts[:length])._kind()
        return self.path

    def checked_file(self) -> Path:
        """Return the path of a file for a library that opens it. Raise ``UsageError`` for anything else of this name."""
        path = self.checked()
        if self.exists() and not self.is_file():
            raise self._no_file(self.stat().st_mode)
        return path

    def checked_tree(self) -> Path:
        """Return the path of a folder for a library that reads all of it. Raise ``UsageError`` for a link or a pipe in it."""
        self.checked()
        for above, folders, files in os.walk(self.path):
            for entry in (Inside(Path(above), (name,)) for name in (*folders, *files)):
                if not (entry.is_dir() or entry.is_file()):
                    raise entry._no_file(0)
        return self.path

    # ------------------------------------------------------------------------------------------------------------ opening

    @contextmanager
    def opened(self) -> Iterator[int]:
        """Yield the descriptor of this folder. Raise ``UsageError`` if a component is a link or no folder."""
        descriptor = os.open(self.root, _FOLDER)
        try:
            for k, part in enumerate(self.parts):
                try:
                    below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
                except NotADirectoryError:  # also for a link to a folder, because of O_DIRECTORY
                    raise Inside(self.root, self.parts[: k + 1])._no_folder() from None
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    def open(self, mode: str = "rb", buffering: int = -1) -> IO[bytes]:
        """Open the file as the builtin does. Raise ``UsageError`` for everything but a file of this folder alone."""
        return open(self.path, mode, buffering, opener=lambda _, flags: self.descriptor(flags))

    def descriptor(self, flags: int) -> int:
        """Open the file and return its descriptor."""
        # A pipe would wait for its other end, so nothing is waited for until the kind is known.
        with self.parent.opened() as folder:
            try:
                descriptor = os.open(
                    self.parts[-1],
                    flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    PRIVATE_FILE,
                    dir_fd=folder,
                )
            except FileNotFoundError:
                raise FileNotFoundError(2, os.strerror(2), str(self)) from None
            except OSError as error:
                raise self._refusal(error) from error
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise self._no_file(status.st_mode)
            if flags & _WRITING and status.st_nlink > 1:
                raise UsageError(
                    f"{self} has another name elsewhere (a hard link), and writing into it would change that file, too: "
                    "replace it by a copy"
                )
            if flags & os.O_TRUNC:
                os.ftruncate(descriptor, 0)
            os.set_blocking(descriptor, True)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def read_bytes(self) -> bytes:
        """Return the content of the file."""
        with self.open() as file:
            return file.read()

    def aside(self) -> "Inside":
        """Return a free name beside this one, for content that the run cannot use and that somebody may need."""
        names = set(self.parent.names())
        return self.with_name(next(name for k in itertools.count() if (name := f"{self.name}.aside-{k:04d}") not in names))

    # ----------------------------------------------------------------------------------------------------------- changing

    def mkdir(self) -> None:
        """Create the folder and those above it, if they do not exist, for this user alone."""
        if not self.parts:
            make_private(self.root)
            return
        self.parent.mkdir()
        with self.parent.opened() as folder:
            try:
                os.mkdir(self.parts[-1], PRIVATE_FOLDER, dir_fd=folder)
            except FileExistsError:
                if not self.is_dir():
                    raise self._no_folder() from None

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file. A link is removed itself; what it leads to stays."""
        try:
            with self.parent.opened() as folder:
                os.unlink(self.parts[-1], dir_fd=folder)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def remove(self) -> None:
        """Remove whatever has this name, if there is something: a file, a link, or a folder and all that is in it."""
        try:
            is_folder = stat.S_ISDIR(self.stat().st_mode)
        except FileNotFoundError:
            return
        if not is_folder:
            self.unlink(missing_ok=True)
            return
        with self.parent.opened() as folder:
            shutil.rmtree(self.parts[-1], dir_fd=folder)

    def rename(self, name: str) -> "Inside":
        """Rename it within its folder, replacing a file of that name, and return the new one."""
        with self.parent.opened() as folder:
            os.rename(self.parts[-1], name, src_dir_fd=folder, dst_dir_fd=folder)
        return self.with_name(name)

    # ----------------------------------------------------------------------------------------------------------- refusing

    def _refusal(self, error: OSError) -> UsageError | OSError:
        """Say why the name cannot be opened as a file."""
        try:
            mode = self.stat().st_mode
        except OSError:
            return error
        if stat.S_ISLNK(mode):
            return self._link()
        return error if stat.S_ISREG(mode) else self._no_file(mode)

    def _link(self) -> UsageError:
        return UsageError(
            f"{self} is a link. A folder may be reached by a link, but no link inside it is followed: put the file or folder "
            "itself in its place, or remove the link. To keep a run on another disk, make its whole folder a link"
        )

    def _no_folder(self) -> UsageError:
        if stat.S_ISLNK(self.stat().st_mode):
            return self._link()
        return UsageError(f"{self} is not a folder, but one is expected here: rename it or remove it")

    def _no_file(self, mode: int) -> UsageError:
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        return UsageError(f"{self} is {kind}, but a file is expected here: rename it or remove it")


@contextmanager
def named(path: "Path | Inside") -> Iterator[None]:
    """Name ``path`` in an error of the operating system that names no file, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        name_file(error, path)
        raise


def name_file(error: OSError, path: "Path | Inside") -> None:
    """As ``named`` does, for what is done in every episode: a context manager takes longer than the writing."""
    if error.filename is None and error.errno in _NO_ROOM:
        error.filename = str(path)


def make_private(folder: Path) -> None:
    """Create ``folder`` for this user alone, if it does not exist; the folders above it with the usual permissions."""
    folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
