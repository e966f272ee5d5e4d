"""Docker's command-line client: one call per question, and files of a container as archives.

The daemon copies files (``docker cp``), so a container needs no program for it. Unlike in a box, links in the folders above a
file are followed, but never out of the container.
"""

import contextlib
import errno
import io
import json
import os
import posixpath
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from typing import IO, NamedTuple

from palestra.errors import MissingExtra, Unsupported
from palestra.sandbox.contract import check_relative
from palestra.sandbox.layers import NewFile

__all__ = [
    "Daemon",
    "client_environment",
    "copy_out",
    "docker",
    "docker_program",
    "fetch_out",
    "is_folder_in",
    "put_in",
    "require_daemon",
]

_MOST_ENTRIES = 5_000
_SECONDS = 60.0
_MISSING = ("could not find the file", "no such container:path", "not a directory", "no such file or directory")


def client_environment() -> dict[str, str]:
    """Return the variables with which the runtime's client finds its daemon, and no others: they may be secrets."""
    kept = {"PATH", "HOME", "XDG_RUNTIME_DIR"}
    return {name: value for name, value in os.environ.items() if name in kept or name.startswith(("DOCKER_", "CONTAINER_"))}


def docker_program() -> str:
    """Return the path of the client.

    Raises:
        MissingExtra: It is not installed.
    """
    found = shutil.which("docker")
    if found is None:
        raise MissingExtra("docker is not on the PATH: install Docker (apt-get install docker.io)")
    return found


def docker(*words: str, given: bytes = b"", seconds: float = _SECONDS) -> bytes:
    """Run the client and return what it prints.

    Raises:
        OSError: The client reports a problem, or takes longer than ``seconds``.
    """
    command = [docker_program(), *words]
    try:
        done = subprocess.run(command, input=given, capture_output=True, check=False, timeout=seconds, env=client_environment())
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, f"docker {words[0]} took longer than {seconds:g} s") from None
    if done.returncode:
        raise _failure(done.stderr or done.stdout)
    return done.stdout


def _failure(words: bytes) -> OSError:
    text = words.decode(errors="replace").strip()[-500:]
    kind = FileNotFoundError if any(part in text.lower() for part in _MISSING) else OSError
    return kind(errno.ENOENT if kind is FileNotFoundError else errno.EIO, text or "docker has failed")


class Daemon(NamedTuple):
    """What a daemon says about its machine."""

    cpus: int
    memory: int
    """In bytes."""


def require_daemon() -> Daemon:
    """Return what the daemon says about its machine.

    Raises:
        MissingExtra: There is no client, or no daemon answers.
        Unsupported: Its containers are not Linux.
    """
    try:
        told = json.loads(docker("info", "--format", "{{json .}}"))
    except OSError as error:
        told = {"ServerErrors": [error.strerror]}
    except json.JSONDecodeError:
        told = {"ServerErrors": ["its answer is not JSON"]}
    if problems := told.get("ServerErrors"):
        raise MissingExtra(f"no Docker daemon answers ({problems[0]}): start it, or name another one in DOCKER_HOST")
    if told.get("OSType") != "linux":
        raise Unsupported(f"this Docker daemon has containers of {told.get('OSType')}, not of linux")
    return Daemon(int(told["NCPU"]), int(told["MemTotal"]))


# ------------------------------------------------------------------------------------------------------------------- archives


def put_in(container: str, files: Sequence[NewFile]) -> None:
    """Write files below the root folder of a container. They belong to its root."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for file in files:
            check_relative(file.path)
            member = tarfile.TarInfo(file.path)
            member.mode, member.mtime = file.mode, file.modified
            if file.link:
                member.type, member.linkname = tarfile.SYMTYPE, file.link
            member.size = 0 if file.link else len(file.content)
            archive.addfile(member, io.BytesIO(file.content))
    if files:
        docker("cp", "-", f"{container}:/", given=packed.getvalue())


def fetch_out(container: str, path: str, limit: int) -> bytes:
    """Return a regular file of a container, if it has at most ``limit`` bytes."""
    with _archived(container, path) as archive:
        member = archive.next()
        if member is None or not member.isreg():
            raise PermissionError(errno.EPERM, "not a regular file", path)
        return _content(archive, member, limit)


def is_folder_in(container: str, path: str) -> bool:
    """Return whether ``path`` is a folder. A link to one is none."""
    try:
        with _archived(container, path) as archive:
            member = archive.next()
            return member is not None and member.isdir()
    except FileNotFoundError:
        return False


def copy_out(container: str, path: str, limit: int) -> list[NewFile]:
    """Return the file or folder ``path`` as new files, links unfollowed. Empty folders are left out.

    Raises:
        OSError: It is missing or not readable, or has more than 5,000 entries or ``limit`` bytes.
    """
    above, found, left = posixpath.dirname(path), dict[str, NewFile](), limit
    with _archived(container, path) as archive:
        for number, member in enumerate(archive):
            if number >= _MOST_ENTRIES:
                raise OSError(errno.EFBIG, f"more than {_MOST_ENTRIES} files", path)
            place = posixpath.join(above, member.name.strip("/"))
            if member.issym():
                found[place] = NewFile(place, link=member.linkname)
            elif member.islnk() and (first := found.get(posixpath.join(above, member.linkname.strip("/")))):
                found[place] = first._replace(path=place)
                left -= len(first.content)
            elif member.isreg():
                content = _content(archive, member, left)
                left -= len(content)
                found[place] = NewFile(place, content, member.mode & 0o777)
    if left < 0:
        raise OSError(errno.EFBIG, f"more than {limit} bytes", path)
    return list(found.values())


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo, limit: int) -> bytes:
    if member.size > limit:
        raise PermissionError(errno.EFBIG, f"the file has {member.size} bytes; at most {limit} may leave", member.name)
    file = archive.extractfile(member)
    return file.read() if file else b""


@contextlib.contextmanager
def _archived(container: str, path: str) -> Iterator[tarfile.TarFile]:
    """Open the archive of a file or folder that the daemon sends. The rest of it is not read."""
    check_relative(path)
    command = [docker_program(), "cp", f"{container}:/{path}", "-"]
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=words, env=client_environment()
        )
        assert process.stdout is not None
        try:
            with _opened(process.stdout) as archive:
                yield archive
        except tarfile.TarError as error:
            process.wait(_SECONDS)
            words.seek(0)
            raise (_failure(words.read()) if process.returncode else OSError(errno.EIO, str(error), path)) from None
        finally:
            process.kill()
            process.stdout.close()
            process.wait()


def _opened(stream: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|")
