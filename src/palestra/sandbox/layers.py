"""Write files into the layer of a box, and read them out, by a descriptor of the layer's folder.

The agent may have put anything there. No path component is ever followed through a link: folders are opened one by one, and
files are read by ``fetch_file``.
"""

import contextlib
import errno
import os
import secrets
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from palestra.errors import InfrastructureError, UsageError
from palestra.sandbox.contract import check_relative
from palestra.sandbox.files import fetch_file
from palestra.sandbox.shell_users import shift_owners
from palestra.sandbox.users import run_in_range

__all__ = [
    "SAVED",
    "Entry",
    "NewFile",
    "copy_of",
    "files_of",
    "move_away",
    "names_in",
    "read_tree",
    "save_layer",
    "write_files",
]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
SAVED = "layer"
"""The name of a saved layer in the folder that ``save_layer`` gets."""
_MOST_ENTRIES = 5_000
_LONGEST = 768
"""Characters of the longest path of a folder whose entries are read; ``fetch_file`` refuses paths above 1,024 characters."""


class NewFile(NamedTuple):
    """A file to write into a layer."""

    path: str
    content: bytes = b""
    mode: int = 0o644
    modified: int = 1_704_067_200
    """Seconds since 1970; the first of January 2024 by default, so that listings are the same in every episode."""
    link: str = ""
    """If not empty, make a symbolic link to this instead."""


class Entry(NamedTuple):
    """What stands in a folder of a layer."""

    path: str
    mode: int
    content: bytes | None
    """The content of a regular file, if it is small enough; the target of a link."""


def write_files(layer: int, files: list[NewFile], owner: int) -> None:
    """Write ``files`` below the folder ``layer``. As root, they and new folders belong to ``owner``."""
    folders: dict[str, int] = {"": os.dup(layer)}
    try:
        for file in files:
            check_relative(file.path)
            above, _, name = file.path.rpartition("/")
            _write(_opened(folders, above, owner), name, file, owner)
        for path, fd in sorted(folders.items(), reverse=True):
            if path and path not in _KEPT:
                os.utime(fd, (NewFile("x").modified,) * 2)
    finally:
        for fd in folders.values():
            os.close(fd)


_KEPT = frozenset({"etc", "home", "tmp", "var", "run"})


def _opened(folders: dict[str, int], path: str, owner: int) -> int:
    if path not in folders:
        above, _, name = path.rpartition("/")
        parent = _opened(folders, above, owner)
        try:
            os.mkdir(name, 0o755, dir_fd=parent)
            made = True
        except FileExistsError:
            made = False
        fd = folders[path] = os.open(name, _FOLDER, dir_fd=parent)
        if made and owner:
            os.fchown(fd, owner, owner)
    return folders[path]


def _write(folder: int, name: str, file: NewFile, owner: int) -> None:
    """Make the file under a new name, and rename it to ``name``: whatever stands there is replaced and never opened.

    The agent's processes may put a pipe there at any time, and an open pipe waits for a reader. They may also keep a descriptor
    of a file that stood there before.
    """
    draft = f".palestra-{secrets.token_hex(8)}"
    try:
        _make(folder, draft, file, owner)
        os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft, dir_fd=folder)
        raise


def _make(folder: int, name: str, file: NewFile, owner: int) -> None:
    if file.link:
        os.symlink(file.link, name, dir_fd=folder)
        if owner:
            os.chown(name, owner, owner, dir_fd=folder, follow_symlinks=False)
        return
    fd = os.open(name, _NEW, 0o600, dir_fd=folder)
    try:
        view = memoryview(file.content)
        while view:
            view = view[os.write(fd, view) :]
        if owner:
            os.fchown(fd, owner, owner)
        os.fchmod(fd, file.mode)
        os.utime(fd, (file.modified, file.modified))
    finally:
        os.close(fd)


def read_tree(layer: int, folder: str, limit: int) -> list[Entry]:
    """Return everything below ``folder``, sorted by path, at most 5,000 entries and ``limit`` bytes in all."""
    entries: list[Entry] = []
    left = limit
    for path, mode in _walk(layer, folder):
        content: bytes | None = None
        if stat.S_ISREG(mode):
            try:
                content = fetch_file(layer, path, left)
                left -= len(content)
            except OSError:
                content = None
        entries.append(Entry(path, mode, content))
        if len(entries) >= _MOST_ENTRIES:
            break
    return sorted(entries)


def _walk(layer: int, folder: str, owner: int | None = None) -> Iterator[tuple[str, int]]:
    """Yield path and mode of everything below ``folder``, which belongs to ``owner``, except what is in folders too deep.

    A folder that the box's first user has closed counts as empty: that is what it has chosen. One that another user of the box
    has closed raises ``PermissionError``, because only this process cannot read it.
    """
    first = os.fstat(layer).st_uid
    pending = [(folder, first if owner is None else owner)]
    while pending:
        path, owner = pending.pop()
        try:
            fd = _descend(layer, path)
        except OSError as error:
            if isinstance(error, PermissionError) and owner != first:
                raise
            continue
        try:
            for name in sorted(os.listdir(fd)):
                status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                yield f"{path}/{name}", status.st_mode
                if stat.S_ISDIR(status.st_mode) and not _is_deep(f"{path}/{name}"):
                    pending.append((f"{path}/{name}", status.st_uid))
        finally:
            os.close(fd)


def _is_deep(folder: str) -> bool:
    return len(folder) > _LONGEST


def _descend(layer: int, path: str) -> int:
    fd = os.dup(layer)
    for name in path.split("/"):
        try:
            below = os.open(name, _FOLDER, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def copy_of(layer: int, path: str, limit: int) -> list[NewFile]:
    """Return the file or folder ``path`` as new files for another layer, links unfollowed. Empty folders are left out.

    Raises:
        OSError: It is missing or not readable, has more than 5,000 entries or ``limit`` bytes, or is too deep.
    """
    above, _, name = path.rpartition("/")
    parent = _descend(layer, above) if above else os.dup(layer)
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    finally:
        os.close(parent)
    entries = list(_walk(layer, path, status.st_uid)) if stat.S_ISDIR(status.st_mode) else [(path, status.st_mode)]
    if len(entries) > _MOST_ENTRIES:
        raise OSError(errno.EFBIG, f"more than {_MOST_ENTRIES} files", path)
    if any(stat.S_ISDIR(mode) and _is_deep(inner) for inner, mode in entries):
        raise OSError(errno.ENAMETOOLONG, f"a folder in it has a path of more than {_LONGEST} characters", path)
    files, left = [], limit
    for inner, mode in entries:
        if stat.S_ISREG(mode):
            content = fetch_file(layer, inner, left)
            left -= len(content)
            files.append(NewFile(inner, content, mode & 0o777))
        elif stat.S_ISLNK(mode):
            files.append(NewFile(inner, link=_target(layer, inner)))
    return files


def _target(layer: int, path: str) -> str:
    above, _, name = path.rpartition("/")
    parent = _descend(layer, above) if above else os.dup(layer)
    try:
        return os.readlink(name, dir_fd=parent)
    finally:
        os.close(parent)


def files_of(folder: Path, target: str) -> list[NewFile]:
    """Return the files below a folder of the host as new files below ``target``. Links stay links.

    Raise ``UsageError`` if ``folder`` itself is a link: the caller resolves it if it may be one.
    """
    if folder.is_symlink():
        raise UsageError(f"{folder} is a link, and is not followed: put the folder itself in its place")
    copies = []
    for above, folders, files in sorted(os.walk(folder)):
        for name in sorted([*files, *(name for name in folders if os.path.islink(os.path.join(above, name)))]):
            path = Path(above, name)
            inside = f"{target}/{path.relative_to(folder)}".strip("/")
            if path.is_symlink():
                copies.append(NewFile(inside, link=os.readlink(path)))
            else:
                copies.append(NewFile(inside, path.read_bytes(), path.stat().st_mode & 0o777))
    return copies


def names_in(layer: int, folder: str) -> list[tuple[str, int]]:
    """Return the names and modes in a folder, links unfollowed; nothing if it is missing or not a folder."""
    try:
        fd = _descend(layer, folder) if folder else os.dup(layer)
    except OSError:
        return []
    try:
        return [(name, os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode) for name in sorted(os.listdir(fd))]
    finally:
        os.close(fd)


def move_away(layer: int, path: str) -> None:
    """Take whatever stands at ``path`` out of the way, if there is something: a file, a link, or a folder of any depth.

    It is renamed, not removed, because the agent may have made a folder that takes minutes to remove.
    """
    above, _, name = path.rpartition("/")
    try:
        parent = _descend(layer, above) if above else os.dup(layer)
    except FileNotFoundError:
        return
    try:
        if os.fstat(parent).st_mode & 0o300 != 0o300:  # the agent may have taken its own right to write
            os.fchmod(parent, 0o755)
        os.rename(name, f".{name}-{secrets.token_hex(8)}", src_dir_fd=parent, dst_dir_fd=parent)
    except FileNotFoundError:
        pass
    finally:
        os.close(parent)


def save_layer(layer: int, folder: Path, users: bool = False) -> None:
    """Copy the layer of a box in which no process runs to the new folder ``SAVED`` of ``folder``.

    ``folder`` is closed to other users: the agent may have left set-user-ID programs, and as root they may belong to root.

    As root, the files of the box's root become root's, and those of its other users belong to the uids of the box. If an
    ordinary user has started a box with ``users``, the files keep the owners of that user's range.
    """
    folder.chmod(0o700)
    saved = folder / SAVED
    saved.mkdir()
    words = ["/bin/cp", "-a", f"/proc/self/fd/{layer}/.", str(saved)]
    done = run_in_range(words, [layer]) if users else subprocess.run(words, capture_output=True, check=False, pass_fds=[layer])
    if done.returncode:
        raise InfrastructureError(f"saving a layer failed: {done.stderr.decode(errors='replace').strip()[-300:]}")
    if os.geteuid() == 0:
        shift_owners(str(saved), 0)
