"""Run the abuse corpus as the given user, and print the findings as JSON.

``python -m tests.sandbox.abuse_run [uid]``: with a uid, everything is imported first and the rights are dropped then.
"""

import asyncio
import ctypes
import json
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.sandbox.abuse import CORPUS, Attempt

from palestra.sandbox import Bubblewrap, Limits, Program

WALL_SECONDS = 2.0


def processes_of_boxes() -> list[str]:
    """Every process that a box may have left: our children, and those with a box's uid (or ours, if we are not root)."""
    own, first = os.getuid(), 1_900_000_000 + os.getpid() % 4096 * 1024
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
            parent = int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1])
            command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        of_a_box = first <= uid < first + 1024 if own == 0 else uid == own and int(pid) != os.getpid()
        if of_a_box or parent == os.getpid():
            found.append(f"{pid} {command[:80]}")
    return found


def traces() -> dict[str, Any]:
    """What a run must leave as it was."""
    temporary = [Path(tempfile.gettempdir()), Path("/dev/shm")]
    return {
        "mounts": Path("/proc/self/mountinfo").read_text().count("\n"),
        "files": sorted(entry.name for folder in temporary for entry in folder.iterdir() if "palestra-breach" in entry.name),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "children": processes_of_boxes(),
        "shared_memory": len(Path("/proc/sysvipc/shm").read_text().splitlines()),
    }


def become(uid: int) -> None:
    """Continue as ``uid``, as a program that this user starts."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)


async def preload() -> None:
    """Read our own files while we still can: they may lie in a home folder."""
    async with Bubblewrap() as sandbox:
        await sandbox.run(Program(code=""))


def report(attempt_all: Callable[[dict[str, str]], Coroutine[Any, Any, list[dict[str, Any]]]]) -> None:
    """Print as JSON what the attempts did, and the traces before and after. The attempts get the places to reach for."""
    os.environ["CANARY_SECRET"] = "CANARY-in-the-environment"
    os.chdir("/")
    with tempfile.NamedTemporaryFile("w", prefix="abuse-canary-") as canary, socket.create_server(("127.0.0.1", 0)) as server:
        canary.write("CANARY")
        canary.flush()
        os.chmod(canary.name, 0o644)
        abstract = f"abuse-{os.getpid()}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{abstract}")
            listener.listen()
            places = {"CANARY_FILE": canary.name, "PORT": str(server.getsockname()[1]), "ABSTRACT": abstract}
            places["HOST_PID"] = str(os.getpid())
            before = traces()
            rows = asyncio.run(attempt_all(places))
            after = traces()
    json.dump({"uid": os.getuid(), "rows": rows, "before": before, "after": after}, sys.stdout)


async def attempt_all(places: dict[str, str]) -> list[dict[str, Any]]:
    async def tried(attempt: Attempt) -> dict[str, Any]:
        outcome = await sandbox.run(Program(code=attempt.aimed_at(places)))
        in_time = outcome.usage.wall_seconds < WALL_SECONDS + 1.5
        contained = b"BREACH" not in outcome.stdout + outcome.stderr and in_time
        return {"name": attempt.name, "contained": contained, "killed_by": outcome.killed_by, "said": outcome.text[-200:]}

    limits = Limits(wall_seconds=WALL_SECONDS, cpu_seconds=2)
    async with Bubblewrap(limits, concurrency=3, warm=2) as sandbox, asyncio.TaskGroup() as group:
        tasks = [group.create_task(tried(attempt)) for attempt in CORPUS]
    return [task.result() for task in tasks]


if __name__ == "__main__":
    asyncio.run(preload())
    if len(sys.argv) > 1:
        become(int(sys.argv[1]))
    report(attempt_all)
