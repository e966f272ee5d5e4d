"""A Chromium without a network: the program that Playwright starts is bubblewrap, and Chromium runs inside.

Playwright talks to the browser through two pipes, so a browser needs no network to be driven. Inside, ``/usr`` is the only part
of the host, read-only, with the fonts. The profile folder is the only thing that can be written, apart from memory. To
intercept requests in Playwright is not enough: WebRTC and preconnections pass by it. A network namespace stops them too.

Before Chromium starts, a launcher inside opens one port on the loopback of the jail, and hands the socket to this process
through ``DOOR``, a unix socket in the same folder. On it, ``front`` answers for the sites of the episodes.
"""

import os
import shlex
import shutil
import sys
from pathlib import Path

from palestra.errors import MissingExtra, UsageError

__all__ = ["DOOR", "chromium_program", "has_chromium", "write_jail"]

DOOR = "door"
"""The name of the unix socket, in the folder of the jail's program."""

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The headless shell comes first: the others also draw a window that no one sees, which costs CPU time at every page."""
_SHARED = ("/etc/fonts", "/etc/chromium", "/etc/chromium.d", "/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime")
_FILES, _SHARED_MEMORY = str(256 * 2**20), str(512 * 2**20)
"""Bytes of the file systems in memory. One without a size could grow to half of the machine's memory."""
_SCRIPT = """#!/bin/sh
profile=
for word in "$@"; do case $word in --user-data-dir=*) profile=${{word#*=}} ;; esac; done
exec {bwrap} ${{profile:+--bind "$profile" "$profile"}} -- {launch} {chromium} "$@"
"""
_LAUNCH = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=128)
door = socket.socket(socket.AF_UNIX)
door.connect(sys.argv[2])
socket.send_fds(door, [b"."], [listener.fileno()])
os.execv(sys.argv[3], sys.argv[3:])
"""
"""Runs inside the jail. Python closes both sockets when it becomes Chromium."""


def has_chromium() -> bool:
    """Return whether there is a Chromium to use."""
    return _found() is not None


def _found() -> str | None:
    named = os.environ.get("PALESTRA_CHROMIUM")
    path = named or next((path for name in _NAMES if (path := shutil.which(name))), None)
    return path if path is not None and os.access(path, os.X_OK) else None


def chromium_program() -> str:
    """Return the path of the Chromium to use: ``PALESTRA_CHROMIUM``, or the first of ``_NAMES`` on the ``PATH``."""
    program = _found()
    if program is None:
        named = os.environ.get("PALESTRA_CHROMIUM")
        where = f"PALESTRA_CHROMIUM names {named}" if named else "none is on the PATH"
        raise MissingExtra(
            f"the web needs Chromium, but {where}: apt-get install chromium-headless-shell, or set PALESTRA_CHROMIUM"
        )
    return str(Path(program).resolve())


def write_jail(folder: Path, chromium: str, port: int) -> Path:
    """Write a program into ``folder`` that starts ``chromium`` without a network, and return its path.

    A unix socket ``DOOR`` must listen in ``folder``. It gets a socket that listens at ``port`` inside the jail.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise MissingExtra("the web needs bubblewrap, but no bwrap is on the PATH: apt-get install bubblewrap")
    words = [
        bwrap,
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--cap-drop", "ALL", "--hostname", "browser"),
        *("--clearenv", "--setenv", "HOME", "/tmp", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "LANG", "C.UTF-8"),  # noqa: S108 - in the box
        *("--ro-bind", "/usr", "/usr"),
        *(word for name in ("lib", "lib64", "bin", "sbin") for word in ("--symlink", f"usr/{name}", f"/{name}")),
        *(word for path in _SHARED for word in ("--ro-bind-try", path, path)),
        *("--proc", "/proc", "--dev", "/dev", "--size", _SHARED_MEMORY, "--tmpfs", "/dev/shm"),  # noqa: S108 - in the box
        *("--size", _FILES, "--tmpfs", "/tmp", "--size", _FILES, "--tmpfs", "/run"),  # noqa: S108 - in the box
    ]
    python = os.path.realpath(sys.executable)
    for home, what in ((Path(chromium).parent, chromium), (Path(sys.base_prefix).resolve(), python)):
        if not home.is_relative_to("/usr"):
            words += ["--ro-bind", str(_narrow(home, what)), str(home)]
    door = str(folder / DOOR)
    words += ["--ro-bind", door, door]
    launch = shlex.join([python, "-I", "-S", "-c", _LAUNCH, str(port), door])
    program = folder / "chromium"
    program.write_text(_SCRIPT.format(bwrap=shlex.join(words), launch=launch, chromium=shlex.quote(chromium)))
    program.chmod(0o755)
    return program


def _narrow(home: Path, what: str) -> Path:
    """Return ``home``, unless it is so large a part of the machine that the browser must not see it."""
    if home in (Path("/"), Path.home()):
        raise UsageError(f"the jail would show all of {home} to the browser: move {what} into a folder of its own")
    return home
