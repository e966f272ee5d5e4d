r"""Shells in boxes: start, reset, round trip, many sessions at once, escapes.

    python benchmarks/terminal.py            # as this user, and as uid 12345 if this is root
    python benchmarks/terminal.py --quick    # fewer repetitions, 32 sessions, no escapes
    python benchmarks/terminal.py --harbor   # only the check of 500 Harbor tasks (24 with --quick); --hacks attacks them

The start is compared with bubblewrap alone: the same root, namespaces and shell, without layer, limits and filter. Both are
measured in turns, and no session is started in advance, but the launcher has its waiting processes, as always after the first
start; the row is the median of the ratios. The other rows use the default, one session in advance. Left
out: Docker, whose start takes ten times as long.
"""

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401  (unprivileged, it may be unreadable later)
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from rows import Row, cpu_minutes, finish

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT))

from tests.sandbox.abuse_run import become  # noqa: E402
from tests.sandbox.shell_abuse import preload  # noqa: E402

from palestra.sandbox.procfs import descendants_of  # noqa: E402
from palestra.sandbox.profile import links_into_usr  # noqa: E402
from palestra.sandbox.shell import Shell, Shells  # noqa: E402

UNPRIVILEGED = 12345


def bare_seconds() -> float:
    """Wall time of bubblewrap with an interactive shell that ends at once."""
    words = ["bwrap", "--unshare-all", "--unshare-user", "--die-with-parent", "--cap-drop", "ALL", "--ro-bind", "/usr", "/usr"]
    words += [
        *links_into_usr(),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
        "--clearenv",
        "--",
        "/bin/bash",
        "--norc",
    ]
    began = time.monotonic()
    subprocess.run([*words, "-i", "-c", "true"], check=True, env={"PATH": os.environ["PATH"]}, stderr=subprocess.DEVNULL)
    return time.monotonic() - began


async def start_ratio(rounds: int) -> float:
    """The median ratio of the start times, without sessions that are started in advance."""
    ratios = []
    async with Shells(warm=0) as shells:
        for _ in range(rounds):
            bare = await asyncio.to_thread(bare_seconds)
            began = time.monotonic()
            async with await shells.open() as shell:
                ratios.append((time.monotonic() - began) / bare)
                await shell.run("true")
    return median(ratios)


async def reset_time(shells: Shells, rounds: int) -> float:
    """Median milliseconds of a reset: a new session, the old one closed. An episode of a few commands lies between."""
    taken = []
    old = await shells.open()
    for _ in range(rounds):
        for _ in range(5):
            await old.run("ls / | wc -l")
        began = time.monotonic()
        new = await shells.open()
        await old.close()
        taken.append(time.monotonic() - began)
        old = new
    await old.close()
    return 1000 * median(taken)


class BareTerminal:
    """bash on a terminal without a box: what a command takes on this machine at this moment."""

    def __init__(self) -> None:
        self._master, slave = os.openpty()
        words = ["/bin/bash", "--norc", "--noprofile", "--noediting"]
        self._bash = subprocess.Popen([*words, "-i"], stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
        os.close(slave)

    async def run(self, command: str) -> None:
        """Type ``command``, and wait for the bell that follows it."""
        loop, rung = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._master, lambda: rung.set() if b"\a" in os.read(self._master, 65536) else None)
        os.write(self._master, f"{command}; printf '\\007'\n".encode())
        await rung.wait()
        loop.remove_reader(self._master)

    def close(self) -> None:
        """End the shell."""
        os.close(self._master)
        self._bash.wait()


async def round_trip(shells: Shells, rounds: int) -> tuple[float, float]:
    """Median milliseconds of a command that prints a word, and the median ratio to bash without a box, in turns."""
    taken, ratios, bare = [], [], BareTerminal()
    async with await shells.open() as shell:
        for _ in range(rounds):
            began = time.monotonic()
            await bare.run("echo hi")
            between = time.monotonic()
            await shell.run("echo hi")
            taken.append(time.monotonic() - between)
            ratios.append(taken[-1] / (between - began))
    bare.close()
    return 1000 * median(taken), median(ratios)


def _resident(pid: int) -> int:
    """Proportional memory of a process, in bytes."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


async def many(shells: Shells, count: int) -> tuple[float, float]:
    """The slowest answer of ``count`` sessions that are asked together, and the megabytes of each beside its shell."""
    before = _resident(os.getpid()) + sum(map(_resident, descendants_of(os.getpid())))
    held: list[Shell] = [await shells.open() for _ in range(count)]

    async def ask(shell: Shell) -> float:
        began = time.monotonic()
        outcome = await shell.run("echo $$")
        assert outcome.exit_code == 0, outcome
        return time.monotonic() - began

    slowest = max(await asyncio.gather(*map(ask, held)))
    inside = descendants_of(os.getpid())
    shells_only = sum(_resident(pid) for pid in inside if Path(f"/proc/{pid}/comm").read_text() == "bash\n")
    whole = _resident(os.getpid()) + sum(map(_resident, inside)) - before - shells_only
    for shell in held:
        await shell.close()
    return slowest, whole / count / 2**20


async def measure(quick: bool) -> dict[str, float]:
    ratio = await start_ratio(10 if quick else 60)
    async with Shells() as shells:
        reset = await reset_time(shells, 10 if quick else 60)
        trip, over = await round_trip(shells, 100 if quick else 1000)
        slowest, memory = await many(shells, 32 if quick else 256)
    return {"ratio": ratio, "reset": reset, "trip": trip, "over": over, "slowest": slowest, "memory": memory}


def probes(uid: int) -> tuple[int, int]:
    """Number of escape and exhaustion attempts, and of those that succeeded."""
    command = [sys.executable, "-m", "tests.sandbox.shell_abuse", *([str(uid)] if uid != os.getuid() else [])]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": path})
    rows = json.loads(done.stdout)["rows"]
    return len(rows), sum(not row["contained"] for row in rows)


def rows_of(uid: int, quick: bool) -> list[Row]:
    who = "root" if uid == 0 else "unprivileged"
    words = [sys.executable, __file__, "--as", str(uid), *(["--quick"] if quick else [])]
    found = json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout)
    sessions = 32 if quick else 256
    rows = [
        Row(f"{who}: start over bubblewrap alone", found["ratio"], "<= 1.3"),
        Row(f"{who}: reset, ms", found["reset"], "<= 50" if uid == 0 else "<= 120"),
        Row(f"{who}: command round trip, median, ms", found["trip"], "<= 2"),
        Row(f"{who}: the same over bash on a terminal without a box", found["over"], ""),
        Row(f"{who}: {sessions} sessions, slowest answer, s", found["slowest"], "<= 1"),
        Row(f"{who}: {sessions} sessions, MB each beside the shell", found["memory"], "<= 12"),
    ]
    if not quick:
        tried, succeeded = probes(uid)
        rows += [Row(f"{who}: escapes tried", tried, ">= 60"), Row(f"{who}: escapes that succeeded", succeeded, "<= 0")]
    return rows


def _replace(place: Path, text: str) -> None:
    place.write_text(text)


def _copy_solution(folder: Path, step: Path) -> None:
    (folder / "environment/copy.sh").write_text((step / "solution/solve.sh").read_text())
    with (folder / "environment/Dockerfile").open("a") as file:
        file.write("COPY copy.sh .\n")


REWARD = "/logs/verifier/reward.txt"
FAULTS: tuple[Callable[[Path, Path], None], ...] = (
    lambda folder, step: _replace(step / "solution/solve.sh", "#!/bin/sh\n:\n"),
    lambda folder, step: _replace(step / "tests/test.sh", f"#!/bin/sh\necho 1 > {REWARD}\n"),
    lambda folder, step: _replace(step / "tests/test.sh", "#!/bin/sh\n:\n"),
    lambda folder, step: _replace(step / "tests/test.sh", f"#!/bin/sh\necho nan > {REWARD}\n"),
    lambda folder, step: _replace(step / "tests/test.sh", f"#!/bin/sh\ndate +%N > {REWARD}\n"),
    lambda folder, step: _replace(folder / "task.toml", "[environment]\ncpus = 'two'\n"),
    lambda folder, step: _replace(folder / "environment/Dockerfile", "FROM debian:12\nRUN exit 3\n"),
    _copy_solution,
)
"""Kinds of faults that the check must find. Each changes a task folder, whose tests are in the folder ``step``."""


def exported(folder: Path, count: int) -> tuple[list[Path], set[int]]:
    """Write ``count`` tasks of all terminal families and levels. Every fourth has a fault, of the kinds in turn."""
    from palestra.trajectory import Task
    from palestra.worlds.harbor.export import export_task
    from palestra.worlds.terminal.env import Terminal
    from palestra.worlds.terminal.families import FAMILIES
    from palestra.worlds.terminal.scene import LEVELS

    places, names = [], list(FAMILIES)
    for number in range(count):
        family, level = names[number % len(names)], LEVELS[number // len(names) % 3]
        places.append(export_task(Terminal(family, level), Task(f"terminal:{family}-v0-{level}", number), folder))
        if number % 4 == 3:
            step = places[-1] / "steps/task"
            FAULTS[number // 4 % len(FAULTS)](places[-1], step if step.is_dir() else places[-1])
    return places, {number for number in range(count) if number % 4 == 3}


def harbor_rows(count: int, hacks: bool) -> list[Row]:
    """Check exported terminal tasks over the host's programs. The target is for 500 tasks, and its share for fewer."""
    from palestra.worlds.harbor.check import CheckSettings, check_tasks

    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALESTRA_HOME"] = f"{folder}/home"
        places, faulty = exported(Path(folder, "tasks"), count)
        began, used = time.monotonic(), cpu_minutes()
        reports = asyncio.run(check_tasks(places, CheckSettings(base="host", hacks=hacks)))
        minutes, used = (time.monotonic() - began) / 60, cpu_minutes() - used
    failed = {number for number, report in enumerate(reports) if not report.ok}
    for number in sorted(faulty ^ failed):
        found = [(one.check, one.detail) for one in reports[number].findings if one.status == "fail"]
        print(f"{reports[number].task}: {found}")
    name, limit = f"harbor: check of {count} tasks{' with hacks' if hacks else ''}", (30 if hacks else 10) * count / 500
    return [
        Row(f"{name}, min", minutes, f"<= {limit:g}"),
        Row(f"{name}, CPU min of two cores", used / 2, f"<= {limit:g}"),
        Row("harbor: planted faults missed", len(faulty - failed), "<= 0"),
        Row("harbor: false alarms", len(failed - faulty), "<= 0"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--harbor", action="store_true")
    parser.add_argument("--hacks", action="store_true")
    parser.add_argument("--tasks", type=int, default=500, help="the number of Harbor tasks")
    parser.add_argument("--as", dest="uid", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.uid is not None:
        preload()
        if chosen.uid != os.getuid():
            become(chosen.uid)
        os.chdir("/")
        print(json.dumps(asyncio.run(measure(chosen.quick))))
        return
    if chosen.harbor:
        finish(harbor_rows(24 if chosen.quick else chosen.tasks, chosen.hacks))
        return
    users = [0, UNPRIVILEGED] if os.getuid() == 0 else [os.getuid()]
    finish([row for uid in users for row in rows_of(uid, chosen.quick)])


if __name__ == "__main__":
    main()
