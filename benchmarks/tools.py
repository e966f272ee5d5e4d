"""Box, judge and tools, measured. Everything takes most of an hour; ``--boxes``, ``--soak`` and so on take one part.

Every comparison runs its two sides back to back in this process, in turns, and gives a ratio.
"""

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import tools_grading  # noqa: E402
from rows import Row, finish  # noqa: E402
from tests.tools.fuzzing import fuzz  # noqa: E402
from tests.tools.many_episodes import episodes  # noqa: E402

from palestra.sandbox import Bubblewrap, Limits, Program  # noqa: E402
from palestra.sandbox.profile import BoxProfile  # noqa: E402
from palestra.sandbox.seccomp import filter_program  # noqa: E402

CODE = "print(sum(range(1000)))"


# ------------------------------------------------------------------------------------------------------------- bare bwrap


def _bare_command(filter_file: str) -> list[str]:
    """The same profile and limits in a shell's words: the cheapest way to start such a box by hand."""
    limits = "ulimit -v 1048576; ulimit -t 5; ulimit -f 32768; ulimit -n 64; ulimit -c 0"
    drop = "setpriv --reuid 1950000000 --regid 1950000000 --clear-groups " if os.geteuid() == 0 else ""
    script = f'{limits}; exec {drop}"$@" 4<{filter_file}'
    profile = BoxProfile(limits=Limits())
    return ["/bin/sh", "-c", script, "sh", *profile.bubblewrap(), "/usr/bin/python3", "-I", "-S", "-c", CODE]


async def _bare_run(command: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE)
    out, err = await process.communicate()
    assert out.strip() == b"499500", err


async def _throughput(run: Callable[[], Awaitable[None]], count: int, concurrency: int) -> float:
    pending = iter(range(count))

    async def work() -> None:
        for _ in pending:
            await run()

    began = time.monotonic()
    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(work())
    return count / (time.monotonic() - began)


async def _latencies(run: Callable[[], Awaitable[None]], count: int, pause: float) -> list[float]:
    taken = []
    for _ in range(count):
        began = time.monotonic()
        await run()
        taken.append(time.monotonic() - began)
        await asyncio.sleep(pause)  # an agent thinks between its calls
    return taken


async def boxes(rounds: int) -> list[Row]:
    """Write the filter where a shell can read it, and compare."""
    with tempfile.NamedTemporaryFile(prefix="palestra-bench-") as file:
        file.write(filter_program())
        file.flush()
        os.chmod(file.name, 0o644)
        return await _compare_boxes(rounds, file.name)


async def _compare_boxes(rounds: int, filter_file: str) -> list[Row]:
    """Warm boxes against bare bubblewrap: throughput at concurrency 8, latency at 1, and a call in an open session."""
    async with Bubblewrap(warm=8, concurrency=8) as sandbox, await sandbox.open_session() as session:
        command = _bare_command(filter_file)

        async def bare_run() -> None:
            await _bare_run(command)

        async def warm_run() -> None:
            outcome = await sandbox.run(Program(code=CODE))
            assert outcome.stdout == b"499500\n", outcome

        async def cell() -> None:
            outcome = await session.run(CODE)
            assert outcome.stdout == b"499500\n", outcome

        ratios = []
        for _ in range(rounds):
            bare = await _throughput(bare_run, 200, 8)
            warm = await _throughput(warm_run, 200, 8)
            ratios.append(warm / bare)
            print(f"  concurrency 8: bare {bare:.1f}/s, warm {warm:.1f}/s, ratio {warm / bare:.2f}")
        bare_times, warm_times, cell_times = [], [], []
        for _ in range(rounds):
            bare_times += await _latencies(bare_run, 20, 0.1)
            warm_times += await _latencies(warm_run, 20, 0.1)
            cell_times += await _latencies(cell, 20, 0.0)
        bare_p50, warm_p50, cell_p50 = (statistics.median(times) for times in (bare_times, warm_times, cell_times))
        print(f"p50 at concurrency 1: bare {bare_p50 * 1e3:.2f} ms, warm {warm_p50 * 1e3:.2f} ms, cell {cell_p50 * 1e3:.3f} ms")
    return [
        Row("boxes from the warm pool over bare bwrap, throughput at concurrency 8", statistics.median(ratios), ">= 0.95"),
        Row("the same, median latency at concurrency 1", warm_p50 / bare_p50, "<= 0.35"),
        Row("a call in an open session over bare bwrap, median latency", cell_p50 / bare_p50, "<= 0.1"),
    ]


async def timeouts() -> list[Row]:
    """How long a time-out of one second takes, over that of a process without a box: a busy machine delays both."""
    async with Bubblewrap() as sandbox:
        taken, ratios = [], []
        for code in (
            "while True: pass",
            "import time; time.sleep(60)",
            "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
        ) * 3:
            bare = await _bare_timeout()
            began = time.monotonic()
            outcome = await sandbox.run(Program(code=code, wall_seconds=1.0))
            taken.append(time.monotonic() - began)
            ratios.append(taken[-1] / bare)
            assert outcome.killed_by is not None
    return [
        Row("a time-out of 1 s over that of a bare process, median of 9", statistics.median(ratios), "<= 1.2"),
        Row("a time-out of 1 s, longest of 9, s", max(taken), ""),
    ]


async def _bare_timeout() -> float:
    """How long it takes to start a Python that computes, and to kill it after a second."""
    began = time.monotonic()
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass")
    await asyncio.sleep(1.0)
    process.kill()
    await process.wait()
    return time.monotonic() - began


# -------------------------------------------------------------------------------------------------------------------- soak


def _state(launcher: int) -> dict[str, int]:
    """Everything that must not grow."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    zombies = 0
    for pid in pids:
        try:
            zombies += Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
    folders = (Path(tempfile.gettempdir()), Path("/dev/shm"))
    return {
        "fds": len(os.listdir("/proc/self/fd")),
        "launcher fds": len(os.listdir(f"/proc/{launcher}/fd")),
        "rss KiB": _rss(os.getpid()),
        "launcher rss KiB": _rss(launcher),
        "zombies": zombies,
        "mounts": Path("/proc/self/mountinfo").read_text().count("\n"),
        "temporary files": sum("palestra" in entry.name for folder in folders for entry in folder.iterdir()),
    }


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4


async def soak(runs: int) -> list[Row]:
    """Many boxed runs of all kinds; what grew, from after the first twentieth to the end."""
    kinds = [CODE, "1/0", "import os; os._exit(3)", "print('x' * 100_000)", "open('f', 'w').write('x')", "import os; os.fork()"]
    rare = ["while True: pass", "import os\nwhile True: os.write(1, b'x' * 65536)"]
    chance = random.Random(0)
    async with Bubblewrap(Limits(wall_seconds=0.5), warm=8, concurrency=8) as sandbox:

        async def run() -> None:
            code = chance.choice(rare) if chance.random() < 0.002 else chance.choice(kinds)
            await sandbox.run(Program(code=code, files={"given": b"x"}, wanted=["f"]))

        await _throughput(run, max(100, runs // 20), 8)
        await _quiet(sandbox)
        launcher = sandbox._pool._process
        assert launcher is not None
        before, began = _state(launcher.pid), time.monotonic()
        for part in range(10):
            await _throughput(run, runs // 10, 8)
            print(f"  {runs // 10 * (part + 1)} runs, {time.monotonic() - began:.0f} s, {_state(launcher.pid)}", flush=True)
        await _quiet(sandbox)
        after = _state(launcher.pid)
    print(f"soak of {runs} runs, growth: { ({name: after[name] - before[name] for name in after}) }")
    counted = [name for name in after if "rss" not in name]
    grown = sum(max(after[name] - before[name], 0) for name in counted)
    resident = max(after[name] - before[name] for name in after if "rss" in name)
    return [
        Row(f"growth of fds, zombies, mounts and files over {runs} boxed runs", grown, "<= 0"),
        Row("growth of resident memory, KiB (pages the allocator holds)", resident, ""),
    ]


async def _quiet(sandbox: Bubblewrap) -> None:
    while sandbox._pool.running > 8:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)


# ------------------------------------------------------------------------------------------------------------------ search


async def search() -> list[Row]:
    """Index 100,000 documents of Debian's dictionaries, and ask them 2,000 questions."""
    from dictionaries import read_dictionary

    from palestra.tools.search.bm25 import Bm25Index, build_index

    documents = [*read_dictionary("foldoc"), *read_dictionary("wn")][:100_000]
    folder = Path(tempfile.mkdtemp(prefix="palestra-bench-"))
    try:
        began, began_cpu = time.monotonic(), time.process_time()
        count = build_index(documents, folder / "index")
        built, built_cpu = time.monotonic() - began, time.process_time() - began_cpu
        index = Bm25Index(folder / "index")
        chance = random.Random(0)
        taken, used = [], []
        for _ in range(2000):
            words = chance.choice(documents).text.split()
            query = " ".join(chance.sample(words, min(6, len(words))))
            began, began_cpu = time.monotonic(), time.thread_time()
            index.search(query, 3)
            taken.append(time.monotonic() - began)
            used.append(time.thread_time() - began_cpu)
    finally:
        shutil.rmtree(folder)
    taken.sort()
    used.sort()
    print(
        f"search: {built_cpu:.2f} s of processor time to index, {used[1000] * 1e3:.3f} ms a query, "
        f"p99 {taken[1980] * 1e3:.3f} ms"
    )
    return [
        Row(f"{count} documents indexed, s", built, "<= 10"),
        Row("search over them, median ms", taken[1000] * 1e3, "<= 2"),
    ]


async def ranking() -> list[Row]:
    """Index 50,000 documents five times, on one core and on two, and ask 400 queries of each index."""
    from tests.tools.ranking import corpus, index_and_rank, queries

    documents, asked = corpus(50_000), queries(400)
    cores = os.sched_getaffinity(0)
    folder = Path(tempfile.mkdtemp(prefix="palestra-bench-"))
    try:
        rankings = []
        for build in range(5):
            os.sched_setaffinity(0, set(sorted(cores)[: 1 + build % 2]))
            rankings.append(index_and_rank(documents, asked, folder / f"{build}"))
    finally:
        os.sched_setaffinity(0, cores)
        shutil.rmtree(folder)
    differing = sum(one != other for again in rankings[1:] for one, other in zip(rankings[0], again, strict=True))
    return [Row("queries of 4 x 400 whose top 10 or scores differ when 50,000 documents are indexed again", differing, "<= 0")]


async def fuzzing(inputs: int) -> list[Row]:
    """Random and mutated inputs to every reader; one that crashes ends the run."""
    return [Row(f"slowest of {inputs} fuzzed inputs, ms (none crashed)", fuzz(inputs) * 1e3, "<= 100")]


async def many_episodes() -> list[Row]:
    """Episodes with Python, search and MCP tools, of which some hang or crash."""
    told = await episodes()
    return [
        Row("episodes of 256 that did not finish", 256 - told["finished"], "<= 0"),
        Row("calls of 1,024 that are not accounted for", 1024 - told["calls"], "<= 0"),
        Row("fds and processes left behind", sum(told["left"].values()), "<= 0"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="boxes, timeouts and search, in under 50 s")
    jobs: dict[str, Callable[[], Awaitable[list[Row]]]] = {
        "boxes": lambda: boxes(1 if given.quick else 5),
        "timeouts": timeouts,
        "search": search,
        "ranking": ranking,
        "judge": tools_grading.judge,
        "forms": tools_grading.forms,
        "hostile": tools_grading.hostile,
        "maths": tools_grading.maths,
        "episodes": many_episodes,
        "soak": lambda: soak(20_000),
        "fuzz": lambda: fuzzing(1_000_000),
    }
    for name in jobs:
        parser.add_argument(f"--{name}", action="store_true", help=f"only this part: {name}")
    given = parser.parse_args()
    chosen = [name for name in jobs if getattr(given, name)]
    chosen = chosen or (["boxes", "timeouts", "search"] if given.quick else list(jobs))
    finish([row for name in chosen for row in asyncio.run(_awaited(jobs[name]))])


async def _awaited(job: Callable[[], Awaitable[list[Row]]]) -> list[Row]:
    return await job()


if __name__ == "__main__":
    main()
