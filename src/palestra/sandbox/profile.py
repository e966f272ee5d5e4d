"""How a box is started: the bubblewrap command line, the limits around it, and the code that waits inside it.

Inside, ``/usr`` is all there is of the host, read-only. ``/box`` is a sized tmpfs with the work folder and ``/tmp``;
everything else is remounted read-only, because an unsized tmpfs could grow to half of the machine's memory.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from palestra.errors import MissingExtra, UsageError
from palestra.sandbox.contract import Limits
from palestra.sandbox.seccomp import filter_program

__all__ = ["Profile"]

_FIRST_UID = 1_900_000_000
"""Uids of boxes started by root lie above those of people, services and containers."""
_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/box/work",
    "TMPDIR": "/box/tmp",
    "LANG": "C.UTF-8",
    "PYTHONHASHSEED": "0",  # the same program prints the same, on any worker
    "PYTHONUTF8": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_COMPILE = "import marshal,sys;sys.stdout.buffer.write(marshal.dumps(compile(sys.stdin.read(),'<box>','exec')))"


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Everything that is the same for all boxes of a provider."""

    limits: Limits
    python: str = "/usr/bin/python3"
    """The interpreter, as the box sees it."""
    packages: Sequence[str] = ()
    """Folders of Python packages to show, read-only, and to put on the search path."""
    boxed: bool = True

    def bootstrap(self) -> bytes:
        """The compiled runner: the first thing a box reads."""
        return _compiled_runner(self.python)

    def launcher_config(self, folder: str) -> str:
        """The launcher's configuration, as JSON."""
        limits = self.limits
        settings = {
            "argv": [*(self._bubblewrap() if self.boxed else []), *self._interpreter()],
            "environment": {} if self.boxed else _ENVIRONMENT,
            "rlimits": {
                "AS": limits.process_memory,
                "CPU": limits.session_cpu_seconds,
                "FSIZE": limits.file_bytes,
                "NOFILE": limits.open_files,
                "CORE": 0,
                "MSGQUEUE": 0,
                "MEMLOCK": 0,
            },
            "seccomp": filter_program().hex() if self.boxed else "",
            "uid": _FIRST_UID + os.getpid() % 4096 * 1024 if self.boxed and os.geteuid() == 0 else 0,
            "memory": limits.total_memory,
            "inodes": limits.files,
            "folder": folder,
            "boxed": self.boxed,
        }
        return json.dumps(settings)

    def _bubblewrap(self) -> list[str]:
        program = shutil.which("bwrap")
        if program is None:
            raise MissingExtra("the box needs bubblewrap, and there is no bwrap on this machine: apt-get install bubblewrap")
        limits = self.limits
        return [
            program,
            *("--seccomp", "4", "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
            *("--cap-drop", "ALL", "--uid", "1000", "--gid", "1000", "--hostname", "box", "--clearenv"),
            *(word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)),
            *("--ro-bind", "/usr", "/usr", *_links_into_usr()),
            *(word for path in self.packages for word in ("--ro-bind", path, path)),
            *("--proc", "/proc", "--dev", "/dev", "--size", str(limits.shared_memory), "--tmpfs", "/dev/shm"),
            *("--size", str(limits.disk_bytes), "--tmpfs", "/box", "--dir", "/box/work", "--dir", "/box/tmp"),
            *("--symlink", "box/tmp", "/tmp", "--remount-ro", "/", "--remount-ro", "/dev", "--chdir", "/box/work", "--"),
        ]

    def _interpreter(self) -> list[str]:
        if not os.access(self.python, os.X_OK):
            raise UsageError(f"no Python at {self.python}: apt-get install python3, or name another one below /usr")
        names = {
            "PROCESSES": self.limits.processes,
            "CPU_SECONDS": self.limits.cpu_seconds,
            "PATHS": list(self.packages),
            "BOXED": self.boxed,
            "ENVIRONMENT": _ENVIRONMENT,
            "__name__": "palestra_box",
        }
        start = f"import marshal,posix;exec(marshal.loads(posix.read(3,{len(self.bootstrap())})),{names!r})"
        return [self.python, "-sSB", "-c", start]


def _links_into_usr() -> list[str]:
    """``/bin``, ``/lib`` and their like, where they are links into ``/usr`` (as on every merged-usr system)."""
    words: list[str] = []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            words += ["--symlink", os.readlink(path).lstrip("/"), str(path)]
        elif path.is_dir():
            words += ["--ro-bind", str(path), str(path)]
    return words


@cache
def _compiled_runner(python: str) -> bytes:
    # Compiled once by the interpreter that will run it: compiling in every box would cost a tenth of its start.
    source = Path(__file__).with_name("runner.py").read_bytes()
    done = subprocess.run([python, "-I", "-S", "-c", _COMPILE], input=source, stdout=subprocess.PIPE, check=True, env={})
    return done.stdout
