"""How a box is started: the bubblewrap command line, its limits, and the code that waits inside.

Inside, ``/usr`` is the only part of the host, read-only. ``/box`` is a tmpfs of limited size with the work folder and ``/tmp``.
Everything else is remounted read-only, because an unlimited tmpfs could grow to half of the machine's memory.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from palestra.errors import MissingExtra, UsageError
from palestra.sandbox.cgroups import memory_hierarchy
from palestra.sandbox.contract import Limits
from palestra.sandbox.seccomp import filter_program

__all__ = ["BoxProfile", "explained", "first_uid", "links_into_usr", "require_boxes", "sources"]

_FIRST_UID = 1_900_000_000
"""First uid of boxes started by root, above the uids of people, services and containers."""
_STARTING_FILES = 1024
"""Descriptors that a box may have until its job begins. The kernel compares this with the number that all boxes of a user have
sent and not received. With the lower limit of a job, one hostile box could keep others from handing over their folders."""
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/box/work",
    "TMPDIR": "/box/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # a program prints the same on any worker
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_COMPILE = """\
import json, marshal, sys
modules = [(name, compile(source, name, "exec")) for name, source in json.load(sys.stdin)]
sys.stdout.buffer.write(marshal.dumps(modules))
"""
_START = """\
import marshal, posix, sys
for name, code in marshal.loads(posix.read(3, {size})):
    module = sys.modules[name] = type(sys)(name)
    exec(code, module.__dict__)
for name in {names}: del sys.modules[name]
module.main({surroundings})
"""
"""Makes modules of what the host has sent, and leaves none of them where code in the box would import it."""


_REMEDIES = (
    ("Unknown option", "install bubblewrap 0.8 or newer"),
    ("mount proc", "in a container, start it with --security-opt systempaths=unconfined, or use the docker sandbox"),
    (
        "namespace",
        "allow user namespaces: sysctl user.max_user_namespaces=15000 kernel.unprivileged_userns_clone=1; "
        "in Docker, start the container with --security-opt seccomp=unconfined",
    ),
    (
        "uid map",
        "allow user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or give bwrap an AppArmor profile",
    ),
)
"""Part of bubblewrap's error message → remedy. The first match is shown."""


def explained(words: str) -> str:
    """Return the output of a box that could not start, with the remedy if it is known."""
    remedy = next((fix for word, fix in _REMEDIES if words.startswith("bwrap:") and word in words), "")
    return f"{words or 'it printed nothing'}{f' ({remedy})' if remedy else ''}"


@dataclass(frozen=True, kw_only=True)
class BoxProfile:
    """Everything that all boxes of a provider share."""

    limits: Limits
    python: str = "/usr/bin/python3"
    """Path of the interpreter inside the box."""
    packages: Sequence[str] = ()
    """Folders of Python packages to mount read-only and put on the search path."""
    boxed: bool = True

    def bootstrap(self) -> bytes:
        """Return the compiled runner, the first thing that a box reads. Raise ``UsageError`` if there is no such Python."""
        if not os.access(self.python, os.X_OK):
            raise UsageError(f"no Python at {self.python}: apt-get install python3, or name another interpreter below /usr")
        return _compiled_runner(self.python)

    def launcher_config(self) -> dict[str, Any]:
        """Return the launcher's configuration. Raise ``MissingExtra`` if this machine lacks what a box needs."""
        limits = self.limits
        return {
            "argv": [*(self.bubblewrap() if self.boxed else []), *self._interpreter()],
            "environment": {} if self.boxed else _ENVIRONMENT,
            "rlimits": {
                "AS": limits.process_memory,
                "CPU": limits.session_cpu_seconds,
                "FSIZE": limits.file_bytes,
                "NOFILE": max(limits.open_files, _STARTING_FILES),
                "CORE": 0,
                "MSGQUEUE": 0,
                "MEMLOCK": 0,
            },
            "seccomp": filter_program().hex() if self.boxed else "",
            "uid": first_uid() if self.boxed else 0,
            "memory": limits.total_memory,
            "cgroup": memory_hierarchy(),
            "inodes": limits.files,
            "boxed": self.boxed,
        }

    def bubblewrap(self) -> list[str]:
        """Return the bubblewrap command; the program to run follows it. Descriptor 4 is the system call filter."""
        program = shutil.which("bwrap")
        if program is None:
            raise MissingExtra("the box needs bubblewrap, but no bwrap is on the PATH: apt-get install bubblewrap")
        limits = self.limits
        return [
            program,
            *("--seccomp", "4", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
            *("--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "box", "--clearenv"),
            *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)),
            *("--ro-bind", "/usr", "/usr", *links_into_usr()),
            *(word for path in self.packages for word in ("--ro-bind", path, path)),
            # A bind mount without "dev" cannot be opened. A shared mapping of /dev/zero would be memory that no limit counts.
            *("--proc", "/proc", "--dev", "/dev", "--ro-bind", "/dev/zero", "/dev/zero"),
            *("--size", str(limits.shared_memory), "--tmpfs", "/dev/shm"),  # noqa: S108 - inside the box
            *("--size", str(limits.disk_bytes), "--tmpfs", "/box", "--dir", "/box/work", "--dir", "/box/tmp"),
            *(
                "--symlink",
                "box/tmp",
                "/tmp",  # noqa: S108 - inside the box
                "--remount-ro",
                "/",
                "--remount-ro",
                "/dev",
                "--remount-ro",
                "/proc",
                "--chdir",
                "/box/work",
                "--",
            ),
        ]

    def _interpreter(self) -> list[str]:
        surroundings = {
            "boxed": self.boxed,
            "processes": self.limits.processes,
            "open_files": self.limits.open_files,
            "cpu_seconds": self.limits.cpu_seconds,
            "paths": list(self.packages),
            "environment": _ENVIRONMENT,
        }
        names = [name for name, _ in sources("runner")]
        start = _START.format(size=len(self.bootstrap()), names=names, surroundings=surroundings)
        return [self.python, "-sSB", "-c", start]


def require_boxes(limits: Limits, python: str = "/usr/bin/python3") -> None:
    """Start an empty box and wait for its end. Raise ``MissingExtra``, with the remedy, if this machine cannot start one.

    Success is remembered: the second call costs nothing.
    """
    if (limits, python) in _proven:
        return
    profile = BoxProfile(limits=limits, python=python)
    profile.launcher_config()
    program, _, _, *walls = profile.bubblewrap()  # without the filter, which needs a descriptor
    drop: dict[str, Any] = {"user": first_uid(), "group": first_uid(), "extra_groups": []} if first_uid() else {}
    try:
        done = subprocess.run(
            [program, *walls, "/usr/bin/true"],
            env={},
            cwd="/",
            capture_output=True,
            timeout=_PROOF_SECONDS,
            check=False,
            **drop,
        )
    except subprocess.TimeoutExpired:
        raise MissingExtra(f"an empty box did not end within {_PROOF_SECONDS:g} s: see `palestra doctor`") from None
    if done.returncode:
        message = explained(done.stderr.decode(errors="replace").strip()[:500])
        raise MissingExtra(f"this machine cannot start a box: {message}")
    _proven.add((limits, python))


_proven: set[tuple[Limits, str]] = set()
_PROOF_SECONDS = 30.0


def first_uid() -> int:
    """Return the first uid for boxes if root starts them, else 0."""
    return _FIRST_UID + os.getpid() % 4096 * 1024 if os.geteuid() == 0 else 0


def links_into_usr() -> list[str]:
    """Return ``/bin``, ``/lib`` and so on if they are links into ``/usr``, as on every merged-usr system."""
    words: list[str] = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path).lstrip("/"), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return words


def sources(program: str) -> list[tuple[str, str]]:
    """Return name and source of a program of ``inside`` and of the modules that it imports, in the order of their imports."""
    modules = {"runner": ("frames", "values", "runner"), "container": ("frames", "container")}[program]
    folder = Path(__file__).with_name("inside")
    return [(f"palestra.sandbox.inside.{name}", (folder / f"{name}.py").read_text()) for name in modules]


@cache
def _compiled_runner(python: str) -> bytes:
    # Compiled once by the interpreter that runs it: compiling in every box would add a tenth to its start time.
    modules = json.dumps(sources("runner")).encode()
    done = subprocess.run([python, "-I", "-S", "-c", _COMPILE], input=modules, stdout=subprocess.PIPE, check=True, env={})
    return done.stdout
