"""Unpack images and other archives into a folder: ``docker save`` and OCI archives layer by layer, others as one layer.

The archive may be a stranger's. Every path is opened by the kernel as if the folder were the root of the file system
(``openat2`` with ``RESOLVE_IN_ROOT``), so no link in the archive leads out. Device nodes are left out, and set-user-id bits are
removed. Owners are not kept, because only root could: ``Owners`` of an image's configuration lists those that were lost.
"""

import contextlib
import ctypes
import errno
import json
import lzma
import os
import shutil
import tarfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from palestra.errors import InfrastructureError, UsageError

__all__ = ["Room", "unpack_image", "unpack_tar"]

_SYS_OPENAT2 = 437
_IN_ROOT = 0x10 | 0x02  # RESOLVE_IN_ROOT, NO_MAGICLINKS
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_MOST_INDEXES = 8
"""Indexes that name indexes: an index could name itself."""
_TRIES = 100
"""How often a folder is opened: the kernel asks to try again if another process renames something meanwhile."""
_MALFORMED = (
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,  # JSON of another shape
    OverflowError,  # a time that no file can have
    RecursionError,  # folders or JSON in too many levels
)


@dataclass
class Room:
    """What may still be unpacked. Archives that belong together, such as the layers of an image, share one."""

    bytes: int = 32 * 2**30
    members: int = 2_000_000

    def take(self, size: int) -> None:
        """Count one member of ``size`` bytes; raise ``ValueError`` if there is no room for it."""
        self.bytes -= size
        self.members -= 1
        if self.bytes < 0 or self.members < 0:
            raise ValueError("it is too large: it has more than 32 GiB or 2,000,000 files")


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


def unpack_image(archive: Path, root: Path) -> dict[str, Any]:
    """Unpack ``archive`` into the empty folder ``root``, and return the image's configuration.

    It has ``Env``, ``WorkingDir`` and ``User``, if the image sets them, and ``Owners``: the ids of users and groups other than
    root to which files of the image belong.
    """
    try:
        with tarfile.open(archive) as outer:
            names = set(outer.getnames())
            if "manifest.json" in names:
                return _unpack_docker(outer, root)
            if "index.json" in names:
                return _unpack_oci(outer, root)
            unpacker = _Unpacker(root)
            unpacker.unpack(outer)
            return {"Owners": sorted(unpacker.owners)}
    except _MALFORMED as error:
        raise UsageError(f"{archive.name} is not an image that can be unpacked: {error}") from error


def unpack_tar(archive: IO[bytes], name: str, root: Path, room: Room | None = None) -> None:
    """Unpack a tar archive, compressed or not, into the folder ``root``. Messages call it ``name``.

    What it takes is subtracted from ``room``. It is no layer of an image, so a file ``.wh.NAME`` is one like any other.
    """
    try:
        with tarfile.open(fileobj=archive) as members:
            _Unpacker(root, room, whiteouts=False).unpack(members)
    except _MALFORMED as error:
        raise UsageError(f"{name} is not a tar archive that can be unpacked: {error}") from error


def _unpack_docker(outer: tarfile.TarFile, root: Path) -> dict[str, Any]:
    first = _json(outer, "manifest.json")[0]
    owners = _unpack_layers(outer, first["Layers"], root)
    return {**_settings(_json(outer, first["Config"])), "Owners": owners}


def _unpack_oci(outer: tarfile.TarFile, root: Path) -> dict[str, Any]:
    manifest = _json(outer, "index.json")
    for _ in range(_MOST_INDEXES):  # an index may name indexes, one per platform
        if "manifests" not in manifest:
            break
        manifest = _json(outer, _blob(manifest["manifests"][0]))
    owners = _unpack_layers(outer, [_blob(layer) for layer in manifest["layers"]], root)
    return {**_settings(_json(outer, _blob(manifest["config"]))), "Owners": owners}


def _unpack_layers(outer: tarfile.TarFile, names: list[str], root: Path) -> list[int]:
    unpacker = _Unpacker(root)
    for name in names:
        with tarfile.open(fileobj=_member(outer, name)) as layer:
            unpacker.unpack(layer)
    return sorted(unpacker.owners)


def _blob(entry: dict[str, Any]) -> str:
    return "blobs/" + str(entry["digest"]).replace(":", "/")


def _member(outer: tarfile.TarFile, name: str) -> IO[bytes]:
    member = outer.extractfile(name)
    if member is None:
        raise ValueError(f"{name} is not a file")
    return member


def _json(outer: tarfile.TarFile, name: str) -> Any:
    return json.loads(_member(outer, name).read(2**24))


def _settings(image: dict[str, Any]) -> dict[str, Any]:
    config = image.get("config") or {}
    return {name: config[name] for name in ("Env", "WorkingDir", "User") if config.get(name)}


class _Unpacker:
    """Writes the members of layers below one folder. With ``whiteouts``, a file ``.wh.NAME`` means that NAME is removed."""

    def __init__(self, root: Path, room: Room | None = None, *, whiteouts: bool = True) -> None:
        self._whiteouts = whiteouts
        self._root = os.open(root, _FOLDER)
        self._room = room or Room()
        self.owners: set[int] = set()
        """The users and groups other than root to which members belong."""

    def __del__(self) -> None:
        os.close(self._root)

    def unpack(self, layer: tarfile.TarFile) -> None:
        for member in layer:
            self._room.take(member.size)
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts:
                raise ValueError(f"{member.name!r} leads out of the image")
            if parts:
                self.owners |= {member.uid, member.gid} - {0}
                self._take(layer, member, "/".join(parts[:-1]), parts[-1])

    def _take(self, layer: tarfile.TarFile, member: tarfile.TarInfo, above: str, name: str) -> None:
        parent = self._folder(above)
        try:
            if self._whiteouts and name == _OPAQUE:
                for other in os.listdir(parent):
                    _remove(other, parent)
            elif self._whiteouts and name.startswith(_WHITEOUT):
                _remove(name[len(_WHITEOUT) :], parent)
            elif member.isdir():
                self._make_folder(name, parent, member.mode)
            else:
                self._write(layer, member, name, parent)
        finally:
            os.close(parent)

    def _write(self, layer: tarfile.TarFile, member: tarfile.TarInfo, name: str, parent: int) -> None:
        if not (member.isreg() or member.issym() or member.islnk()):
            return  # devices and pipes: the box brings its own
        _remove(name, parent)
        if member.issym():
            os.symlink(member.linkname, name, dir_fd=parent)
        elif member.islnk():
            self._link(member.linkname, name, parent)
        else:
            fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=parent)
            with os.fdopen(fd, "wb") as file:
                content = layer.extractfile(member)
                assert content is not None
                shutil.copyfileobj(content, file, 2**20)
                os.fchmod(fd, member.mode & 0o777)
                os.utime(fd, (member.mtime, member.mtime))

    def _link(self, target: str, name: str, parent: int) -> None:
        above, _, last = target.strip("/").rpartition("/")
        source = self._folder(above)
        try:
            os.link(last, name, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
        finally:
            os.close(source)

    def _make_folder(self, name: str, parent: int, mode: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            if not _is_folder(name, parent):
                # A link to a folder stays: packages put files below /lib, which is a link in most images.
                if self._leads_to_folder(name, parent):
                    return
                _remove(name, parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        fd = os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
        try:
            os.fchmod(fd, (mode & 0o1777) | 0o700)
        finally:
            os.close(fd)

    def _leads_to_folder(self, name: str, parent: int) -> bool:
        try:
            where = os.path.relpath(os.readlink(f"/proc/self/fd/{parent}"), os.readlink(f"/proc/self/fd/{self._root}"))
            os.close(self._open(os.path.join(where, name)))
        except OSError:
            return False
        return True

    def _folder(self, path: str) -> int:
        """Return a descriptor of the folder ``path``, which is made if it is missing."""
        try:
            return self._open(path or ".")
        except FileNotFoundError:
            above, _, name = path.rpartition("/")
            parent = self._folder(above)
            try:
                os.mkdir(name, 0o755, dir_fd=parent)
            finally:
                os.close(parent)
            return self._open(path)

    def _open(self, path: str) -> int:
        how = _OpenHow(_FOLDER, 0, _IN_ROOT)
        number = errno.EAGAIN
        for _ in range(_TRIES):
            fd: int = _libc.syscall(_SYS_OPENAT2, self._root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
            if fd >= 0:
                return fd
            number = ctypes.get_errno()
            if number != errno.EAGAIN:
                break
        if number == errno.ENOSYS:
            raise InfrastructureError("this kernel has no openat2 (Linux 5.6), so images cannot be unpacked safely")
        raise OSError(number, os.strerror(number), path)


def _is_folder(name: str, parent: int) -> bool:
    return (os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & 0o170000) == 0o040000


def _remove(name: str, parent: int) -> None:
    if name in ("", ".", "..") or "/" in name:
        raise ValueError(f"{name!r} is not a name")
    try:
        if _is_folder(name, parent):
            shutil.rmtree(name, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
