"""Root file systems for shell boxes: a cache of unpacked images, by content hash.

``RootCache`` maps the name of an image, such as ``debian:12``, to a folder with a whole system, or to ``host``: this machine's
``/usr`` in a small system. A folder is filled from an archive (``docker save``, OCI, ``docker export``, mmdebstrap), under the
hash of the archive. Nothing is guessed: an image without an entry has no root file system.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from palestra.errors import MissingExtra, UsageError
from palestra.sandbox.files import fetch_file
from palestra.sandbox.unpacking import unpack_image
from palestra.sandbox.users import remove_tree

__all__ = ["HOST", "Root", "RootCache", "drafted"]

HOST = "host"
_MOST_LIST_BYTES = 2**20
_DRAFT, _YOUNG_SECONDS = ".draft-", 3600.0


@dataclass(frozen=True)
class Root:
    """A root file system that shells can be opened over."""

    key: str
    """The hash of the archive, or ``host``."""
    path: str
    """Its folder; empty for the host's ``/usr``."""
    variables: dict[str, str] = field(default_factory=dict)
    """The variables of the image."""
    workdir: str = ""
    image: str = ""
    """The name under which it was found."""
    user: str = ""
    """The user of the image."""
    owners: frozenset[int] | None = frozenset()
    """Users and groups whose files became root's when the image was unpacked; ``None`` if an older version unpacked it."""

    def lost_owner(self, user: str) -> str:
        """Return why files of ``user``, as ``USER`` of a Dockerfile names it, have the wrong owner here; else an empty text."""
        if self.owners is None:
            return f"an older version of Palestra unpacked the image: remove {Path(self.path).parent}, and add it again"
        lost = self.owners and self.owners & self._ids_of(user)
        return "the image has files of this user, and unpacking gave them to root" if lost else ""

    def _ids_of(self, user: str) -> set[int]:
        """Return the numbers of user and group: as they are written, or from the image's own lists."""
        name, _, group = user.partition(":")
        accounts = [line for line in self._lines("etc/passwd") if name in (line[0], line[2])]
        groups = [line for line in self._lines("etc/group") if group in (line[0], line[2])]
        words = {name, group, *(word for line in accounts for word in line[2:4]), *(line[2] for line in groups)}
        return {int(word) for word in words if word.isascii() and word.isdigit()}

    def _lines(self, path: str) -> list[list[str]]:
        """Return the lines of a list of accounts or groups. The image may be a stranger's: no link is followed."""
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            text = fetch_file(folder, path, _MOST_LIST_BYTES).decode(errors="replace")
        except OSError:
            return []
        finally:
            os.close(folder)
        return [line.split(":") for line in text.splitlines() if line.count(":") >= 3]


class RootCache:
    """A folder of root file systems.

    Args:
        folder: The folder; it is made when something is added.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def images(self) -> dict[str, str]:
        """Return the names of images → the keys of their root file systems."""
        try:
            keys: dict[str, str] = json.loads((self.folder / "images.json").read_text())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UsageError(f"{self.folder}/images.json cannot be read: {error}") from None
        return keys

    def find(self, image: str) -> Root | None:
        """Return the root file system of ``image``, or ``None``."""
        key = self.images().get(image, "")
        if key == HOST:
            return Root(HOST, "", image=image)
        folder = self.folder / "roots" / key
        if not key or not folder.is_dir():
            return None
        config: dict[str, Any] = json.loads((folder / "image.json").read_text())
        variables = dict(word.split("=", 1) for word in config.get("Env") or () if "=" in word)
        owners = frozenset(config["Owners"]) if "Owners" in config else None
        workdir, user = (config.get(name) or "" for name in ("WorkingDir", "User"))
        return Root(key, str(folder / "root"), variables, workdir, image, user, owners)

    def use_host(self, image: str) -> None:
        """Let ``image`` mean this machine's ``/usr``."""
        self._name(image, HOST)

    def add_archive(self, image: str, archive: Path) -> str:
        """Unpack ``archive`` unless its content is in the cache, let ``image`` mean it, and return its key.

        Raises:
            UsageError: The file is missing, or is not an image.
        """
        try:
            with archive.open("rb") as file:
                key = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise UsageError(f"the archive {archive} cannot be read: {error.strerror}") from None
        folder = self.folder / "roots" / key
        if not folder.is_dir():
            with drafted(folder) as draft:
                (draft / "root").mkdir()
                config = unpack_image(archive, draft / "root")
                (draft / "image.json").write_text(json.dumps(config))
        self._name(image, key)
        return key

    def add_debian(self, image: str, suite: str, packages: Sequence[str] = ()) -> str:
        """Make a Debian system with mmdebstrap, which needs a network, and let ``image`` mean it. Return its key."""
        program = shutil.which("mmdebstrap")
        if program is None:
            raise MissingExtra("making a Debian system needs mmdebstrap: apt-get install mmdebstrap")
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix=".debian-") as folder:
            archive = Path(folder, "root.tar")
            included = [f"--include={','.join(packages)}"] if packages else []
            done = subprocess.run(
                [program, "--variant=minbase", *included, suite, str(archive)], capture_output=True, check=False
            )
            if done.returncode:
                words = done.stderr.decode(errors="replace").strip()[-500:]
                raise UsageError(f"mmdebstrap could not make {suite}: {words}")
            return self.add_archive(image, archive)

    def _name(self, image: str, key: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = json.dumps({**self.images(), image: key}, indent=1)
            draft = self.folder / ".images.json"
            draft.write_text(text)
            draft.rename(self.folder / "images.json")


@contextmanager
def drafted(target: Path) -> Iterator[Path]:
    """Yield a folder that becomes ``target`` at the end of the block. If another process is first, its folder stays.

    The folder is locked meanwhile, so that a later call can tell the drafts of processes that were killed, and remove them.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(target.parent)
    draft = Path(tempfile.mkdtemp(prefix=_DRAFT, dir=target.parent))
    lock = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield draft
        draft.chmod(0o755)
        try:
            os.rename(draft, target)
        except OSError:
            if not target.is_dir():
                raise
    finally:
        remove_tree(draft)
        os.close(lock)


def _remove_abandoned(folder: Path) -> None:
    """Remove the drafts in ``folder`` that no process has locked. One that was just made may not be locked yet, and stays."""
    for draft in folder.glob(f"{_DRAFT}*"):
        try:
            if time.time() - draft.stat().st_mtime < _YOUNG_SECONDS:
                continue
            fd = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # removed meanwhile
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_tree(draft)
        except OSError:  # another process works on it
            pass
        finally:
            os.close(fd)
