"""How a shell box is started: the bubblewrap command line, the small system around ``/usr``, and the shell's startup file.

The shell reads its commands from a descriptor, not from the terminal: lines of a terminal are cut after 4,095 bytes, and a
program that reads its input would swallow them. One short line on the terminal (``trigger``) makes the shell read and run the
next command; at its prompt the shell prints a mark with the exit code. The mark is an escape sequence with a random word.
Code in the box can print it too, and then misleads only its own agent: graders never use it.
"""

import os
import secrets
import shlex
import shutil
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from palestra.errors import MissingExtra, UsageError
from palestra.sandbox.cgroups import memory_hierarchy
from palestra.sandbox.contract import MIB, Limits
from palestra.sandbox.profile import first_uid, links_into_usr
from palestra.sandbox.seccomp import filter_program
from palestra.sandbox.shell_launcher import COMMANDS, FILTER, STARTUP, TERMINAL
from palestra.sandbox.users import users_config

__all__ = ["ENVIRONMENT", "HOME", "NEXT", "SHELL_LIMITS", "ShellProfile"]

SHELL_LIMITS = Limits(
    wall_seconds=30.0,
    cpu_seconds=60,
    session_cpu_seconds=120,
    file_bytes=64 * MIB,
    disk_bytes=128 * MIB,
    files=20_000,
    open_files=256,
    processes=64,
    kept_output=256 * 1024,
)
"""The default limits of a shell: more files, processes and time than a job has."""

NEXT = ".palestra-next"
"""The startup file of the shell of another user, below the root."""
BASH = ("/bin/bash", "--noprofile", "--noediting", "--rcfile", f"/proc/self/fd/{STARTUP}", "-i")
"""The shell and its arguments."""
HOME = "home/agent"
"""The home and first working folder of the agent, below the root."""

ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SHELL": "/bin/bash",  # else bash looks itself up in /etc/passwd
    "LC_CTYPE": "C.UTF-8",  # not LC_ALL: every program would read a dozen locale files
    "TZ": "UTC",
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
}
"""The variables of a shell, beside its ``HOME``."""
_CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID")
"""What root of a box with users may do to the users and files of that box: the part of Docker's list that needs no network."""
_FOLDERS = (
    *(("etc", 0o755), ("home", 0o755), (HOME, 0o755), ("mnt", 0o755), ("opt", 0o755), ("root", 0o755), ("run", 0o755)),
    *(("srv", 0o755), ("tmp", 0o1777), ("var", 0o755), ("var/lib", 0o755), ("var/log", 0o755), ("var/tmp", 0o1777)),
)
_FILES = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/bash\nagent:x:1000:1000::/home/agent:/bin/bash\n",
    "etc/group": "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
    "etc/hosts": "127.0.0.1 localhost box\n",
    "etc/hostname": "box\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
_STARTUP = r"""
unset HISTFILE
set +o history +H
ulimit -S -H -u {processes} -n {files} 2>/dev/null
PS1= PS2=
__number={number}
__mark='printf "\e]7717;{word};%s;%d\a" "$__number" "$?"'
PROMPT_COMMAND=$__mark
__restore() {{ return "$1"; }}
exec {startup}<&-
cd "$HOME"
if [ -e /.palestra-fork ]; then . /.palestra-fork; rm -f /.palestra-fork; fi
"""
_TRIGGER = (
    "__status=$? __number={number}; IFS= read -r -d '' -u {commands} __command; __restore $__status; "
    'eval "$__command" {commands}<&-; __status=$?; PROMPT_COMMAND=$__mark; __restore $__status\n'
)


@dataclass(frozen=True, kw_only=True)
class ShellProfile:
    """Everything that all shells of a provider share."""

    limits: Limits = SHELL_LIMITS
    root: str = ""
    """The root folder; empty for the host's ``/usr`` in a small system."""
    users: bool = False
    """Whether the box has root and other users, instead of one user. ``users_missing`` says whether this machine allows it."""
    point: str = ""
    """An empty folder of ours, on which each box mounts its layer in a namespace of its own."""
    word: str = field(default_factory=lambda: secrets.token_hex(8))
    boxed: bool = True
    python: str = "/usr/bin/python3"

    def __post_init__(self) -> None:
        if self.root and not os.path.isdir(self.root):
            raise UsageError(f"no root folder at {self.root}: name a folder with a whole system, such as debootstrap makes")

    @cached_property
    def mark(self) -> bytes:
        """What the shell prints at its prompt, before the number of the command, the exit code and a BEL."""
        return f"\x1b]7717;{self.word};".encode()

    @staticmethod
    def trigger(number: int) -> bytes:
        """Return the line on the terminal that makes the shell run the next command, which has this number."""
        return _TRIGGER.format(commands=COMMANDS, number=number).encode()

    def startup(self, number: int = 0) -> str:
        """Return the startup file of a shell whose first prompt ends the command with this number."""
        limits = self.limits
        return _STARTUP.format(
            processes=limits.processes, files=limits.open_files, word=self.word, startup=STARTUP, number=number
        )

    @staticmethod
    def replacement(become: str, home: str) -> bytes:
        """Return the line on the terminal that replaces the shell by one of another user, whose startup file is ``NEXT``."""
        start = f"exec {become} env HOME={shlex.quote(home)} {shlex.join(BASH)}"
        return f"exec {STARTUP}</{NEXT}; rm -f /{NEXT}; {start}\n".encode()

    def bootstrap(self) -> bytes:
        """Return nothing: a shell needs no code of ours."""
        return b""

    def launcher_config(self) -> dict[str, Any]:
        """Return the launcher's configuration. Raise ``MissingExtra`` if this machine lacks what a box needs."""
        limits = self.limits
        return {
            "argv": self._bubblewrap(),
            "rlimits": {
                "AS": limits.process_memory,
                "CPU": limits.session_cpu_seconds,
                "FSIZE": limits.file_bytes,
                "CORE": 0,
                "MSGQUEUE": 0,
                "MEMLOCK": 0,
            },
            "seccomp": filter_program().hex(),
            "uid": first_uid(),
            "memory": limits.total_memory,
            "cgroup": memory_hierarchy(),
            "inodes": limits.files,
            "disk": limits.disk_bytes,
            "boxed": True,
            "users": users_config(limits.processes) if self.users else None,
            "root": self.root,
            "point": self.point,
            "folders": _FOLDERS,
            "files": _FILES,
            "programs": [] if self.root else _programs(),
            "links": [(link[1], link[2]) for link in _in_threes(links_into_usr()) if link[0] == "--symlink"],
            "startup": self.startup(),
        }

    def _bubblewrap(self) -> list[str]:
        program = shutil.which("bwrap")
        if program is None:
            raise MissingExtra("the box needs bubblewrap, but no bwrap is on the PATH: apt-get install bubblewrap")
        number = "0" if self.root else "1000"
        environment = {**ENVIRONMENT, "HOME": "/root" if self.root else f"/{HOME}"}
        one_user = ("--unshare-user", "--disable-userns", "--uid", number, "--gid", number)
        many = (word for name in _CAPABILITIES for word in ("--cap-add", f"CAP_{name}"))
        return [
            program,
            *("--seccomp", str(FILTER), "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
            *("--unshare-cgroup-try", "--die-with-parent", "--hostname", "box", "--clearenv"),
            *("--cap-drop", "ALL", *(many if self.users else one_user)),
            *(word for name, value in environment.items() for word in ("--setenv", name, value)),
            *("--dev-bind", f"{self.point}/box", "/", "--dev-bind-try", TERMINAL, "/dev/console"),
            *("--proc", "/proc", "--remount-ro", "/proc", "--chdir", "/", "--", *BASH),
        ]


def _programs() -> list[str]:
    """Return the host's folders and files of programs. Links into ``/usr`` are part of the layer: a fork brings them along."""
    bound = (three[1] for three in _in_threes(links_into_usr()) if three[0] != "--symlink")
    return ["/usr", *bound, "/etc/alternatives", "/etc/ld.so.cache"]


def _in_threes(words: list[str]) -> list[list[str]]:
    return [words[start : start + 3] for start in range(0, len(words), 3)]
