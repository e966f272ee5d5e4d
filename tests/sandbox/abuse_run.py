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
import time
from pathlib import Path
from typing import Any

from tests.sandbox.abuse import CORPUS, Attempt

from palestra.sandbox import Bubblewrap, Limits, Outcome, Program

WALL_SECONDS = 2.0


def processes_of_boxes() -> list[str]:
    """Every process that a box may have left: our children, and those with a box's uid (or ours, if we are not root)."""
    own = os.getuid()
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            uid = os.stat(f"/proc/{pid}").st_uid
            parent = int(Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[1])
            command = Path("/proc", pid, "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        of_a_box = _in_our_slots(uid) if own == 0 else uid == own and int(pid) != os.getpid()
        if of_a_box or parent == os.getpid():
            found.append(f"{pid} {command[:80]}")
    return found


def _in_our_slots(uid: int) -> bool:
    first = 1_900_000_000 + os.getpid() % 4096 * 1024
    return first <= uid < first + 1024


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


async def attempt_all(places: dict[str, str]) -> list[dict[str, Any]]:
    limits = Limits(wall_seconds=WALL_SECONDS, cpu_seconds=2)

    async def one(attempt: Attempt) -> dict[str, Any]:
        code = attempt.code
        for name, value in places.items():
            code = code.replace(name, value)
        return _row(attempt, await sandbox.run(Program(code=code)))

    async with Bubblewrap(limits, concurrency=3, warm=2) as sandbox, asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(attempt)) for attempt in CORPUS]
    return [task.result() for task in tasks]


def _row(attempt: Attempt, outcome: Outcome) -> dict[str, Any]:
    in_time = outcome.usage.wall_seconds < WALL_SECONDS + 1.5
    return {
        "name": attempt.name,
        "contained": b"BREACH" not in outcome.stdout + outcome.stderr and in_time,
        "seconds": round(outcome.usage.wall_seconds, 2),
        "killed_by": outcome.killed_by,
        "said": outcome.text[-200:],
    }


async def _preload() -> None:
    """Read our own files while we still can: they may lie in a home folder."""
    async with Bubblewrap() as sandbox:
        await sandbox.run(Program(code=""))


def main() -> None:
    asyncio.run(_preload())
    if len(sys.argv) > 1:
        uid = int(sys.argv[1])
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable again, as any program that this user starts
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
            before, began = traces(), time.monotonic()
            rows = asyncio.run(attempt_all(places))
            after = traces()
    seconds = round(time.monotonic() - began, 1)
    json.dump({"uid": os.getuid(), "rows": rows, "before": before, "after": after, "seconds": seconds}, sys.stdout)


if __name__ == "__main__":
    main()
