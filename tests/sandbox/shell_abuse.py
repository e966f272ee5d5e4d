"""Attempts to get out of a shell box, or to harm the machine from it, and the run that makes them all.

``python -m tests.sandbox.shell_abuse [uid]`` prints the findings as JSON; with a uid, rights are dropped first. Most attempts
are those against the box of jobs, run by ``python3`` in the shell; the rest needs a shell or a terminal.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  (unprivileged, it may be unreadable later)
import ctypes
import json
import os
import socket
import sys
import tempfile
import time
from typing import Any

from tests.sandbox.abuse import CORPUS, Attempt
from tests.sandbox.abuse_run import traces

from palestra.sandbox import Limits
from palestra.sandbox.boxes import _launcher_source
from palestra.sandbox.profile import _compiled_runner
from palestra.sandbox.seccomp import filter_program
from palestra.sandbox.shell import ShellOutcome, Shells
from palestra.sandbox.shell_launcher import MODULES
from palestra.sandbox.users import range_source

WALL_SECONDS = 2.0
HANGS = 60.0
"""Seconds after which an attempt counts as one that could not be ended. The machine may be busy."""
OF_USERS = ("become another user", "set-uid program", "change groups", "set-uid copy", "chown to root")
"""What root of a box with users may do."""
LIMITS = Limits(
    wall_seconds=WALL_SECONDS,
    file_bytes=16 * 2**20,
    disk_bytes=64 * 2**20,
    open_files=256,
    session_cpu_seconds=20,
    files=5000,
    kept_output=2**18,
)

OTHERWISE = {"passwd", "root's home", "write the root", "descriptors", "inodes"}
"""Allowed here, in the layer of the box, or tried below with the limits of a shell."""

SHELL = [
    Attempt("a new terminal", "exec 5<>/dev/ptmx && echo BREACH"),
    Attempt("list terminals", "ls /dev/pts/* 2>/dev/null && echo BREACH"),
    Attempt("write commands to the shell", "printf 'echo BREACH\\0' >&200"),
    Attempt("read further commands", "timeout 1 cat <&200 && echo BREACH"),
    Attempt("environment of the first process", "tr '\\0' '\\n' </proc/1/environ | grep CANARY && echo BREACH"),
    Attempt("arguments of the first process", "grep -a CANARY /proc/1/cmdline && echo BREACH"),
    Attempt("secrets in the environment", "env | grep CANARY && echo BREACH"),
    Attempt("the host's file", "cat CANARY_FILE && echo BREACH"),
    Attempt("the host's file by a link", "ln -s CANARY_FILE l; cat l && echo BREACH"),
    Attempt("the host's shadow", "cat /etc/shadow && echo BREACH"),
    Attempt("the host's homes", "ls /root/.bashrc /home/*/.bashrc 2>/dev/null && echo BREACH"),
    Attempt("write /usr", "touch /usr/palestra-breach && echo BREACH"),
    Attempt("write /dev", "touch /dev/palestra-breach && echo BREACH"),
    Attempt("write /etc/alternatives", "touch /etc/alternatives/palestra-breach && echo BREACH"),
    Attempt(
        "writable mounts",
        r"""awk '$5 !~ "^/(dev/(shm|console))?$" && $6 !~ /^ro(,|$)/ { print "BREACH", $5 }' /proc/self/mountinfo""",
    ),
    Attempt("tcp by bash", "exec 3<>/dev/tcp/127.0.0.1/PORT && echo BREACH"),
    Attempt("udp by bash", "exec 3<>/dev/udp/127.0.0.1/PORT && echo BREACH"),
    Attempt("resolve a name", "getent ahostsv4 example.com && echo BREACH"),
    Attempt("raise processes", "ulimit -u 10000 && echo BREACH"),
    Attempt("raise open files", "ulimit -n 10000 && echo BREACH"),
    Attempt("raise memory", "ulimit -v unlimited && echo BREACH"),
    Attempt("raise time", "ulimit -t unlimited && echo BREACH"),
    Attempt("raise file size", "ulimit -f unlimited && echo BREACH"),
    Attempt("core files", "ulimit -c unlimited && echo BREACH"),
    Attempt("su", "su -c true && echo BREACH"),
    Attempt("mount", "mount -t tmpfs none /mnt && echo BREACH"),
    Attempt("bind mount", "mount --bind / /mnt && echo BREACH"),
    Attempt("remount /usr", "mount -o remount,rw /usr && echo BREACH"),
    Attempt("unmount /usr", "umount -l /usr && echo BREACH"),
    Attempt("unshare", "unshare -Urm true && echo BREACH"),
    Attempt("nsenter", "nsenter -t 1 -a true && echo BREACH"),
    Attempt("chroot", "chroot / true && echo BREACH"),
    Attempt("device node", "mknod d b 254 0 && echo BREACH"),
    Attempt("device node of a disk in /tmp", "mknod /tmp/d c 1 1 && echo BREACH"),
    Attempt("set-uid copy", "cp /usr/bin/id i; chmod u+s i; ./i -u | grep -x 0 && echo BREACH"),
    Attempt("chown to root", "touch f; chown 0 f && echo BREACH"),
    Attempt("file capabilities", "cp /usr/bin/id i; setcap cap_sys_admin+ep i && echo BREACH"),
    Attempt("sysrq", "echo c > /proc/sysrq-trigger && echo BREACH"),
    Attempt("core pattern", "echo x > /proc/sys/kernel/core_pattern && echo BREACH"),
    Attempt("kernel log", "dmesg | head -1 | grep . && echo BREACH"),
    Attempt("other processes", "[ $(ls -d /proc/[0-9]* | wc -l) -gt 12 ] && echo BREACH"),
    Attempt("kill a host process", "kill -0 HOST_PID && echo BREACH"),
    Attempt("stop the first process", "kill -STOP 1; kill -KILL 1; [ -e /proc/1 ] || echo BREACH"),
    Attempt("open files", "n=0; while exec {fd}</dev/null; do n=$((n+1)); [ $n -gt 300 ] && echo BREACH && break; done"),
    Attempt("disk", "head -c 15M /dev/urandom >a; for i in $(seq 20); do cat a >b$i || break; done; [ -s b12 ] && echo BREACH"),
    Attempt(
        "disk by shared memory",
        "for i in $(seq 20); do head -c 15M /dev/urandom >/dev/shm/b$i || break; done; [ -s /dev/shm/b12 ] && echo BREACH",
    ),
    Attempt("inodes", "python3 -c 'for i in range(50000): open(str(i), \"w\").close()'; [ -e 6000 ] && echo BREACH"),
    Attempt(
        "inodes of links",
        "python3 -c 'import os\nfor i in range(50000): os.symlink(\"x\", str(i))'; [ -L 6000 ] && echo BREACH",
    ),
    Attempt("fork bomb of shells", ":(){ :|:& };: ; sleep 600"),
    Attempt("jobs", "for i in $(seq 200); do sleep 600 & done; [ $(jobs -r | wc -l) -gt 70 ] && echo BREACH"),
    Attempt("a daemon", "setsid nohup sh -c 'trap \"\" HUP TERM INT; while :; do sleep 1; done' >/dev/null 2>&1 &"),
    Attempt("a shell that cannot be interrupted", "trap '' INT TERM HUP QUIT TSTP; while :; do :; done"),
    Attempt("a raw terminal", "stty raw -isig; cat"),
    Attempt("another shell", "exec bash --norc -i"),
    Attempt("no output", "exec >/dev/null 2>&1 </dev/null; sleep 600"),
    Attempt("the shell kills itself", "kill -9 $$"),
    Attempt("the shell stops itself", "kill -STOP $$"),
    Attempt("the shell ends", "exit 0"),
    Attempt("no prompt", "unset PROMPT_COMMAND __mark; PS1='$ '"),
    Attempt("a forged prompt", 'eval "$__mark"; sleep 600'),
    Attempt("a function in place of read", "read() { sleep 600; }; eval() { sleep 600; }"),
    Attempt("endless output", "yes"),
    Attempt("endless bytes", "cat /dev/urandom"),
    Attempt("one endless line", "tr '\\n' x </dev/urandom"),
    Attempt("escapes: title and clipboard", r"printf '\e]0;owned\a\e]52;c;b3duZWQ=\a\e[21t\e[6n\eP+q\e\\'"),
    Attempt("escapes: unfinished", r"printf '\e]0;'; printf '\e['"),
    Attempt("escapes: 8-bit", r"printf '\x9b31m\x9d0;x\x9c\xe2\x80\xae'"),
    Attempt("memory of the shell", "x=$(head -c 50M /dev/urandom | base64 -w0); while :; do x=$x$x; done; echo BREACH"),
    Attempt("memory of a pipeline", "head -c 8G /dev/urandom | sort >/dev/null && echo BREACH"),
    Attempt("a sparse file", "truncate -s 100G f && echo BREACH"),
    Attempt(
        "deep folders", "for i in $(seq 9000); do mkdir d && cd d || break; done 2>/dev/null; [ $i -gt 6000 ] && echo BREACH"
    ),
    Attempt(
        "map /dev/zero",
        """python3 -c 'import mmap, os\nmmap.mmap(os.open("/dev/zero", 0), 2**20, prot=mmap.PROT_READ)' && echo BREACH""",
    ),
    Attempt("the real-time clock", "date -s 2001-01-01 && echo BREACH"),
    Attempt("priority", "nice -n -10 sh -c '[ $(nice) -lt 0 ]' && echo BREACH"),
    Attempt("out-of-memory score", "echo -1000 > /proc/self/oom_score_adj && echo BREACH"),
    Attempt("control groups", "ls /sys/fs/cgroup 2>/dev/null && echo BREACH"),
]

IN_PYTHON = [attempt for attempt in CORPUS if attempt.name not in OTHERWISE]


def command_of(attempt: Attempt) -> str:
    if attempt in SHELL:
        return attempt.code
    return f"python3 - <<'END_OF_ATTEMPT'\n{attempt.code}\nEND_OF_ATTEMPT"


async def attempt_all(places: dict[str, str], users: bool) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(3)

    async def one(attempt: Attempt) -> dict[str, Any]:
        command = command_of(attempt)
        for name, value in places.items():
            command = command.replace(name, value)
        async with slots, await shells.open() as shell:
            began = time.monotonic()
            outcome = await shell.run(command)
            shown = outcome.text
            if outcome.running:
                outcome = await shell.interrupt()
            shown += outcome.text
            if shell.alive and not shell.running:
                shown += (await shell.run("echo still here")).text
            return _row(attempt, outcome, shown, time.monotonic() - began)

    attempts = [attempt for attempt in [*IN_PYTHON, *SHELL] if not (users and attempt.name in OF_USERS)]
    async with Shells(LIMITS, users=users) as shells, asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(attempt)) for attempt in attempts]
    return [task.result() for task in tasks]


def _row(attempt: Attempt, outcome: ShellOutcome, shown: str, seconds: float) -> dict[str, Any]:
    lines = {line.split(" ")[0] for line in shown.splitlines()}
    clean = not any(mark in shown for mark in "\x1b\x07\x9b\u202e")
    return {
        "name": attempt.name,
        "contained": "BREACH" not in lines and clean and seconds < HANGS and not outcome.running,
        "seconds": round(seconds, 2),
        "killed_by": outcome.killed_by,
        "shown": shown[-200:],
    }


def preload() -> None:
    """Read our own files while we still can: they may lie in a home folder."""
    filter_program()
    _launcher_source(MODULES)
    range_source()
    _compiled_runner("/usr/bin/python3")


def become(uid: int) -> None:
    """Continue as ``uid``, as a program that this user starts."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)


def main() -> None:
    preload()
    users = "users" in sys.argv[1:]
    if uid := next((word for word in sys.argv[1:] if word.isdigit()), ""):
        become(int(uid))
    os.environ["CANARY_SECRET"] = "CANARY-in-the-environment"
    os.chdir("/")
    with tempfile.NamedTemporaryFile("w", prefix="abuse-canary-") as canary, socket.create_server(("127.0.0.1", 0)) as server:
        canary.write("CANARY")
        canary.flush()
        os.chmod(canary.name, 0o644)
        places = {"CANARY_FILE": canary.name, "PORT": str(server.getsockname()[1]), "HOST_PID": str(os.getpid())}
        places["ABSTRACT"] = f"abuse-{os.getpid()}"
        before = traces()
        rows = asyncio.run(attempt_all(places, users))
        after = traces()
    json.dump({"uid": os.getuid(), "rows": rows, "before": before, "after": after}, sys.stdout)


if __name__ == "__main__":
    main()
