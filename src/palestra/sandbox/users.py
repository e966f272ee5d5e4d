"""Whether this machine allows boxes with several users, and which ids those get."""

import json
import os
import pwd
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from palestra.errors import Unsupported
from palestra.sandbox.shell_users import COUNT

__all__ = ["range_source", "remove_tree", "run_in_range", "users_config", "users_missing"]

_KERNEL = (5, 14)
"""The first version that limits the processes of a user namespace."""
_FILES = (("newuidmap", "/etc/subuid"), ("newgidmap", "/etc/subgid"))


def users_missing() -> str:
    """Return why boxes here have one user only, and what to do about it; an empty text if they can have several."""
    version = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    if version < _KERNEL:
        return f"a box has one user, because this kernel ({os.uname().release}) is older than {'.'.join(map(str, _KERNEL))}"
    if os.geteuid() == 0:
        return ""
    for program, file in _FILES:
        if shutil.which(program) is None:
            return f"a box has one user, because {program} is not installed: apt-get install uidmap"
        if not _range_of(Path(file)):
            return (
                f"a box has one user, because {file} gives {_name()} no {COUNT - 1} ids: usermod --add-subuids, --add-subgids"
            )
    return ""


def users_config(processes: int) -> dict[str, Any]:
    """Return what the launcher needs for boxes with users.

    Args:
        processes: The most processes of a box.

    Raises:
        Unsupported: This machine does not allow them.
    """
    if missing := users_missing():
        raise Unsupported(missing)
    helpers: list[tuple[str | None, list[int]]] = []
    for (program, file), id in zip(_FILES, (os.geteuid(), os.getegid()), strict=True):
        if os.geteuid():
            helpers.append((shutil.which(program), [0, id, 1, 1, _range_of(Path(file)), COUNT - 1]))
    return {"processes": processes, "helpers": helpers}


def run_in_range(words: Sequence[str], fds: Sequence[int] = ()) -> "subprocess.CompletedProcess[bytes]":
    """Run a program as root of this user's range, so that it may read and remove what users of a box have made.

    The range is that of the boxes (``enter_range``). The host's root needs none.

    Raises:
        Unsupported: This machine does not allow boxes with users.
    """
    if os.geteuid():
        helpers = json.dumps(users_config(0)["helpers"])
        words = ["/usr/bin/python3", "-I", "-S", "-c", range_source(), helpers, *words]
    return subprocess.run(words, capture_output=True, check=False, pass_fds=list(fds))


@cache
def range_source() -> str:
    """Return the program that enters the range: as for the launcher, the user may be unable to read our files."""
    return Path(__file__).with_name("shell_users.py").read_text()


def remove_tree(folder: Path) -> None:
    """Remove a folder that may have any depth, and in which files may belong to users of a box. What cannot go stays."""
    words = ["/bin/rm", "-rf", "--", str(folder)]
    if folder.exists():
        subprocess.run(words, capture_output=True, check=False)
    if folder.exists() and not users_missing():
        run_in_range(words)


def _range_of(file: Path) -> int:
    """Return the first id of a range of this user that is large enough, or 0."""
    names = (_name(), str(os.geteuid()))
    try:
        lines = [line.split(":") for line in file.read_text().splitlines()]
    except OSError:
        return 0
    ranges = (line for line in lines if len(line) == 3 and line[0] in names and line[1].isdigit() and line[2].isdigit())
    return next((int(first) for _, first, count in ranges if int(count) >= COUNT - 1), 0)


def _name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
