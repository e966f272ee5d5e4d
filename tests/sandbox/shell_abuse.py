"""Attempts to get out of a shell box, or to harm the machine from it, and the run that makes them all.

``python -m tests.sandbox.shell_abuse [uid]`` prints the findings as JSON; with a uid, rights are dropped first. Most attempts
are those against the box of jobs, run by ``python3`` in the shell; the rest needs a shell or a terminal.
"""

import asyncio
import concurrent.futures.thread  # noqa: F401  (unprivileged, it may be unreadable later)
import sys
import time
from functools import partial
from typing import Any

from tests.sandbox.abuse import CORPUS, Attempt
from tests.sandbox.abuse_run import become, report
from tests.tables import rows

from palestra.sandbox import Limits
from palestra.sandbox.boxes import _launcher_source
from palestra.sandbox.profile import _compiled_runner
from palestra.sandbox.seccomp import filter_program
from palestra.sandbox.shell import Shells
from palestra.sandbox.shell_launcher import MODULES
from palestra.sandbox.users import range_source

WALL_SECONDS = 2.0
HANGS = 60.0
"""Seconds after which an attempt counts as one that could not be ended. The machine may be busy."""
OF_USERS = ("become another user", "set-uid program", "change groups", "set-uid copy", "chown to root")
"""What root of a box with users may do."""
_SIZES = {"file_bytes": 16 * 2**20, "disk_bytes": 64 * 2**20, "open_files": 256, "files": 5000, "kept_output": 2**18}
LIMITS = Limits(wall_seconds=WALL_SECONDS, session_cpu_seconds=20, **_SIZES)

OTHERWISE = {"passwd", "root's home", "write the root", "descriptors", "inodes"}
"""Allowed here, in the layer of the box, or tried below with the limits of a shell."""

SHELL = [
    *rows(Attempt)(r"""
a new terminal ¦ exec 5<>/dev/ptmx && echo BREACH ‖ list terminals ¦ ls /dev/pts/* 2>/dev/null && echo BREACH
write commands to the shell ¦ printf 'echo BREACH\0' >&200 ‖ read further commands ¦ timeout 1 cat <&200 && echo BREACH
environment of the first process ¦ tr '\0' '\n' </proc/1/environ | grep CANARY && echo BREACH
arguments of the first process ¦ grep -a CANARY /proc/1/cmdline && echo BREACH
secrets in the environment ¦ env | grep CANARY && echo BREACH ‖ the host's file ¦ cat CANARY_FILE && echo BREACH
the host's file by a link ¦ ln -s CANARY_FILE l; cat l && echo BREACH ‖ the host's shadow ¦ cat /etc/shadow && echo BREACH
the host's homes ¦ ls /root/.bashrc /home/*/.bashrc 2>/dev/null && echo BREACH
write /usr ¦ touch /usr/palestra-breach && echo BREACH ‖ write /dev ¦ touch /dev/palestra-breach && echo BREACH
write /etc/alternatives ¦ touch /etc/alternatives/palestra-breach && echo BREACH
writable mounts ¦ awk '$5 !~ "^/(dev/(shm|console))?$" && $6 !~ /^ro(,|$)/ { print "BREACH", $5 }' /proc/self/mountinfo
tcp by bash ¦ exec 3<>/dev/tcp/127.0.0.1/PORT && echo BREACH ‖ udp by bash ¦ exec 3<>/dev/udp/127.0.0.1/PORT && echo BREACH
resolve a name ¦ getent ahostsv4 example.com && echo BREACH ‖ raise processes ¦ ulimit -u 10000 && echo BREACH
raise open files ¦ ulimit -n 10000 && echo BREACH ‖ raise memory ¦ ulimit -v unlimited && echo BREACH
raise time ¦ ulimit -t unlimited && echo BREACH ‖ raise file size ¦ ulimit -f unlimited && echo BREACH
core files ¦ ulimit -c unlimited && echo BREACH ‖ su ¦ su -c true && echo BREACH
mount ¦ mount -t tmpfs none /mnt && echo BREACH ‖ bind mount ¦ mount --bind / /mnt && echo BREACH
remount /usr ¦ mount -o remount,rw /usr && echo BREACH ‖ unmount /usr ¦ umount -l /usr && echo BREACH
unshare ¦ unshare -Urm true && echo BREACH ‖ nsenter ¦ nsenter -t 1 -a true && echo BREACH
chroot ¦ chroot / true && echo BREACH ‖ device node ¦ mknod d b 254 0 && echo BREACH
device node of a disk in /tmp ¦ mknod /tmp/d c 1 1 && echo BREACH
set-uid copy ¦ cp /usr/bin/id i; chmod u+s i; ./i -u | grep -x 0 && echo BREACH
chown to root ¦ touch f; chown 0 f && echo BREACH
file capabilities ¦ cp /usr/bin/id i; setcap cap_sys_admin+ep i && echo BREACH
sysrq ¦ echo c > /proc/sysrq-trigger && echo BREACH ‖ core pattern ¦ echo x > /proc/sys/kernel/core_pattern && echo BREACH
kernel log ¦ dmesg | head -1 | grep . && echo BREACH
other processes ¦ [ $(ls -d /proc/[0-9]* | wc -l) -gt 12 ] && echo BREACH
kill a host process ¦ kill -0 HOST_PID && echo BREACH
stop the first process ¦ kill -STOP 1; kill -KILL 1; [ -e /proc/1 ] || echo BREACH
open files ¦ n=0; while exec {fd}</dev/null; do n=$((n+1)); [ $n -gt 300 ] && echo BREACH && break; done
disk ¦ head -c 15M /dev/urandom >a; for i in $(seq 20); do cat a >b$i || break; done; [ -s b12 ] && echo BREACH
disk by shared memory
  ¦ for i in $(seq 20); do head -c 15M /dev/urandom >/dev/shm/b$i || break; done; [ -s /dev/shm/b12 ] && echo BREACH
inodes ¦ python3 -c 'for i in range(50000): open(str(i), "w").close()'; [ -e 6000 ] && echo BREACH
inodes of links ¦ python3 -c 'import os⏎for i in range(50000): os.symlink("x", str(i))'; [ -L 6000 ] && echo BREACH
fork bomb of shells ¦ :(){ :|:& };: ; sleep 600
jobs ¦ for i in $(seq 200); do sleep 600 & done; [ $(jobs -r | wc -l) -gt 70 ] && echo BREACH
a daemon ¦ setsid nohup sh -c 'trap "" HUP TERM INT; while :; do sleep 1; done' >/dev/null 2>&1 &
a shell that cannot be interrupted ¦ trap '' INT TERM HUP QUIT TSTP; while :; do :; done
a raw terminal ¦ stty raw -isig; cat ‖ another shell ¦ exec bash --norc -i
no output ¦ exec >/dev/null 2>&1 </dev/null; sleep 600 ‖ the shell kills itself ¦ kill -9 $$
the shell stops itself ¦ kill -STOP $$ ‖ the shell ends ¦ exit 0 ‖ no prompt ¦ unset PROMPT_COMMAND __mark; PS1='$ '
a forged prompt ¦ eval "$__mark"; sleep 600 ‖ a function in place of read ¦ read() { sleep 600; }; eval() { sleep 600; }
endless output ¦ yes ‖ endless bytes ¦ cat /dev/urandom ‖ one endless line ¦ tr '\n' x </dev/urandom
escapes: title and clipboard ¦ printf '\e]0;owned\a\e]52;c;b3duZWQ=\a\e[21t\e[6n\eP+q\e\\'
escapes: unfinished ¦ printf '\e]0;'; printf '\e[' ‖ escapes: 8-bit ¦ printf '\x9b31m\x9d0;x\x9c\xe2\x80\xae'
memory of the shell ¦ x=$(head -c 50M /dev/urandom | base64 -w0); while :; do x=$x$x; done; echo BREACH
memory of a pipeline ¦ head -c 8G /dev/urandom | sort >/dev/null && echo BREACH
a sparse file ¦ truncate -s 100G f && echo BREACH
deep folders ¦ for i in $(seq 9000); do mkdir d && cd d || break; done 2>/dev/null; [ $i -gt 6000 ] && echo BREACH
map /dev/zero ¦ python3 -c 'import mmap, os⏎mmap.mmap(os.open("/dev/zero", 0), 2**20, prot=mmap.PROT_READ)' && echo BREACH
the real-time clock ¦ date -s 2001-01-01 && echo BREACH ‖ priority ¦ nice -n -10 sh -c '[ $(nice) -lt 0 ]' && echo BREACH
out-of-memory score ¦ echo -1000 > /proc/self/oom_score_adj && echo BREACH
control groups ¦ ls /sys/fs/cgroup 2>/dev/null && echo BREACH
"""),
]

IN_PYTHON = [
    Attempt(attempt.name, f"python3 - <<'END_OF_ATTEMPT'\n{attempt.code}\nEND_OF_ATTEMPT")
    for attempt in CORPUS
    if attempt.name not in OTHERWISE
]


async def attempt_all(places: dict[str, str], users: bool = False) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(3)

    async def tried(attempt: Attempt) -> dict[str, Any]:
        async with slots, await shells.open() as shell:
            began = time.monotonic()
            outcome = await shell.run(attempt.aimed_at(places))
            shown = outcome.text
            if outcome.running:
                outcome = await shell.interrupt()
            shown += outcome.text
            if shell.alive and not shell.running:
                shown += (await shell.run("echo still here")).text
            ended = time.monotonic() - began < HANGS and not outcome.running
            breached = "BREACH" in {line.split(" ")[0] for line in shown.splitlines()} or set(shown) & set("\x1b\x07\x9b\u202e")
            return {"name": attempt.name, "contained": ended and not breached, "shown": shown[-200:]}

    attempts = [attempt for attempt in [*IN_PYTHON, *SHELL] if not (users and attempt.name in OF_USERS)]
    async with Shells(LIMITS, users=users) as shells, asyncio.TaskGroup() as group:
        tasks = [group.create_task(tried(attempt)) for attempt in attempts]
    return [task.result() for task in tasks]


def preload() -> None:
    """Read our own files while we still can: they may lie in a home folder."""
    filter_program()
    _launcher_source(MODULES)
    range_source()
    _compiled_runner("/usr/bin/python3")


if __name__ == "__main__":
    preload()
    if uid := next((word for word in sys.argv[1:] if word.isdigit()), ""):
        become(int(uid))
    report(partial(attempt_all, users="users" in sys.argv[1:]))
