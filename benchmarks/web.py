r"""The web: resets, steps, and many contexts at once while browsers are killed.

    python benchmarks/web.py                        # every site, 32 contexts, 500 episodes
    python benchmarks/web.py --quick                # two sites, 4 contexts, 12 episodes, one browser killed
    python benchmarks/web.py --only crowd           # one part: resets, steps, crowd or plan
    python benchmarks/web.py --only plan --write    # and keep the constants, with the date, where palestra plan finds them

CPU is the time of this process and of all processes below it: Playwright's driver, Chromium and the sites. Wall time is not
limited, because it depends on what else the machine does. A reset is measured after two others, which warm the site and the
browser. The steps are compared with a loop that makes the same calls of Playwright on the same page and does nothing with the
results; both sides take turns, and the rows are medians of ratios.

The part crowd plays MiniWoB's click-button with its oracle in many contexts. In the meantime, a browser is killed every few
seconds. An episode that a kill has hit is played again, as everywhere in Palestra. The pages of the sites have no scripts, so
an environment keeps its browser context from one episode to the next; the first two resets, which open it, are not in the
median.

The part plan measures CPU and memory of an episode, predicts the episodes per second of one and of two workers, and compares
them with workers that each have one core for themselves, their browser and their sites. It needs a machine that does nothing
else, and --quick leaves it out. Each part prints its rows on stderr as soon as it is done.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from rows import Row, finish

from palestra.cluster.simulation import Constants, simulate
from palestra.cluster.worlds import WORLDS, WorldCosts
from palestra.core import AsyncEnv
from palestra.errors import InfrastructureError
from palestra.sandbox.procfs import cpu_seconds, descendants_of
from palestra.worlds.web import acting
from palestra.worlds.web.browsers import shared_browsers
from palestra.worlds.web.miniwob import env as miniwob
from palestra.worlds.web.sites.env import Errands

TOWNS = ("wiki", "shop", "forum", "tracker", "across")
STEPS_PER_ROUND = 20
EPISODES_PER_WORKER = 9
"""Three per context. A worker has one core, which is busy as long as one of its episodes is under way."""


def cpu_by_process() -> dict[int, float]:
    """Return the CPU seconds of this process and of all below it."""
    found = {os.getpid(): time.process_time()}
    for pid in descendants_of(os.getpid()):
        found[pid] = cpu_seconds(pid)
    return found


def cpu_since(before: dict[int, float]) -> float:
    """Return the CPU seconds since then. What a process has used that was started and has ended since then is not in it."""
    return sum(used - before.get(pid, 0.0) for pid, used in cpu_by_process().items())


async def reset_seconds(env: AsyncEnv, number: int) -> float:
    """Return the median CPU of a reset to the first observation."""
    taken = []
    for seed in range(number + 2):
        before = cpu_by_process()
        await env.reset(seed=seed)
        taken.append(cpu_since(before))
    return median(taken[2:])


async def resets(names: tuple[str, ...], number: int) -> list[Row]:
    """Measure the resets of MiniWoB and of the sites."""
    rows = []
    async with shared_browsers():
        small = miniwob.MiniWob("login-user")
        try:
            rows.append(Row("reset of MiniWoB, CPU s", await reset_seconds(small, number), "<= 0.2"))
        finally:
            await small.close()
        for name in names:
            env = Errands(f"palestra.worlds.web.sites.{name}.town:town", "easy", 30)
            try:
                rows.append(Row(f"reset of web:{name}-easy, CPU s", await reset_seconds(env, number), "<= 1.0"))
            finally:
                await env.close()
    return rows


async def bare_step(page: Any, ref: str) -> None:
    """Make the calls of a click and an observation, and nothing else."""
    (element,) = await page.locator(f"aria-ref={ref}").element_handles()
    x, y, _ = await element.evaluate(acting._POINT)
    await page.mouse.click(x, y)
    await page.evaluate(miniwob._look_script(), acting.MILLISECONDS_PER_ACTION)
    await page.locator("body").aria_snapshot(mode="ai")


async def one_round(step: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """Return CPU seconds of this process and of all, for some steps."""
    own, all_before = time.process_time(), cpu_by_process()
    for _ in range(STEPS_PER_ROUND):
        await step()
    return time.process_time() - own, cpu_since(all_before)


async def steps(rounds: int) -> list[Row]:
    """Compare steps with the bare calls."""
    async with shared_browsers():
        env = miniwob.MiniWob("click-checkboxes-large", 100_000)
        try:
            await env.reset(seed=1)
            ref = next(one.ref for one in env._pages[-1] if one.role == "checkbox")
            page, own = env._page, env._ids.own(ref)

            async def ours() -> None:
                await env.step(f"click [{ref}]")
                del env._pages[:-1]

            pairs = []
            for _ in range(rounds + 1):
                pairs.append((await one_round(lambda: bare_step(page, own)), await one_round(ours)))
        finally:
            await env.close()
    ratios = [median(mine[place] / bare[place] for bare, mine in pairs[1:]) for place in (0, 1)]
    return [
        Row("step over the bare calls, CPU of this process", ratios[0], "<= 1.5"),
        Row("step over the bare calls, CPU of all processes", ratios[1], "<= 1.1"),
    ]


def tree_megabytes() -> float:
    """Return the proportional set size of this process and of all below it."""
    total = 0
    for pid in (os.getpid(), *descendants_of(os.getpid())):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def browsers_running() -> list[int]:
    """Return the processes that hold a browser: the outer one of each jail."""
    names = {}
    for pid in descendants_of(os.getpid()):
        try:
            names[pid] = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
    jails = {pid: int(text.rpartition(")")[2].split()[1]) for pid, text in names.items() if "(bwrap)" in text}
    return sorted(pid for pid, parent in jails.items() if parent not in jails)


class Crowd:
    """Episodes in many contexts, while browsers are killed."""

    def __init__(self, contexts: int, episodes: int, every: float) -> None:
        self.left = self.episodes = episodes
        self.contexts, self.every = contexts, every
        self.solved = self.retried = self.killed = 0
        self.memory: list[float] = []

    async def player(self) -> None:
        env = miniwob.MiniWob("click-button")
        try:
            while self.left > 0:
                self.left -= 1
                seed = self.left
                while not await self.played(env, seed):
                    self.retried += 1
        finally:
            await env.close()

    async def played(self, env: miniwob.MiniWob, seed: int) -> bool:
        """Play one episode; return false if a browser has died."""
        try:
            await env.reset(seed=seed)
            while True:
                step = await env.step(await env.oracle())
                if step.terminated or step.truncated:
                    self.solved += step.reward == 1.0
                    return True
        except InfrastructureError:
            return False

    async def killer(self) -> None:
        """Kill a browser from time to time; without a time, once, after a third of the episodes."""
        while self.left > 0:
            await asyncio.sleep(self.every or 0.5)
            self.memory.append(tree_megabytes())
            running = browsers_running()
            due = bool(self.every) or (not self.killed and self.solved >= self.episodes / 3)
            if running and due and self.left > 0:
                os.kill(running[self.killed % len(running)], signal.SIGKILL)
                self.killed += 1

    async def run(self) -> None:
        async with shared_browsers(), asyncio.TaskGroup() as tasks:
            tasks.create_task(self.killer())
            for _ in range(self.contexts):
                tasks.create_task(self.player())


async def crowd(contexts: int, episodes: int, every: float) -> list[Row]:
    """Play many episodes at once, and look at what is left behind."""
    before = set(descendants_of(os.getpid()))
    one = Crowd(contexts, episodes, every)
    began = time.monotonic()
    await one.run()
    took = time.monotonic() - began
    for _ in range(200):
        left = set(descendants_of(os.getpid())) - before
        if not left:
            break
        await asyncio.sleep(0.05)
    middle = len(one.memory) // 2
    growth = max(one.memory[middle:]) / max(one.memory[:middle]) if middle else 1.0
    return [
        Row(f"{contexts} contexts, episodes solved of {episodes}", one.solved, f">= {episodes}"),
        Row("browsers killed in the meantime", one.killed, ">= 1"),
        Row("episodes played again", one.retried, ""),
        Row("memory of the second half over the first, peaks", growth, "<= 1.2"),
        Row("MB per context, at the peak", max(one.memory) / contexts, ""),
        Row("episodes per second", episodes / took, ""),
        Row("processes left behind", len(left), "<= 0"),
    ]


# ------------------------------------------------------------------------------------------------------------------ plan


def made(world: str) -> miniwob.MiniWob | Errands:
    """Return an environment of a world of ``palestra plan``."""
    if world == "miniwob":
        return miniwob.MiniWob("login-user")
    return Errands("palestra.worlds.web.sites.forum.town:town", template="like", max_turns=30)


async def played_by_oracle(env: miniwob.MiniWob | Errands, seed: int) -> tuple[float, float, int]:
    """Play an episode. Return CPU seconds of the reset and of all turns, and the number of turns."""
    before = cpu_by_process()
    await env.reset(seed=seed)
    reset = cpu_since(before)
    turns, ended = 0, False
    while not ended:
        _, _, terminated, truncated, _ = await env.step(await env.oracle())
        turns, ended = turns + 1, terminated or truncated
    return reset, cpu_since(before) - reset, turns


async def costs_of(world: str, episodes: int) -> tuple[WorldCosts, float]:
    """Return the costs of a world, and the turns of its episodes. Memory is that of eight contexts, which fill a browser.

    The first two episodes warm the site and the browser, and are not counted.
    """
    empty = tree_megabytes()
    async with shared_browsers():
        envs = [made(world) for _ in range(8)]
        try:
            for env in envs:
                await env.reset(seed=0)
            megabytes = (tree_megabytes() - empty) / len(envs)
            found = [await played_by_oracle(envs[0], seed) for seed in range(1, episodes + 3)][2:]
        finally:
            for env in envs:
                await env.close()
    turns = sum(number for _, _, number in found)
    reset, turn = median(one for one, _, _ in found), sum(taken for _, taken, _ in found) / turns
    machine = f"{os.cpu_count()} cores"
    load = os.getloadavg()[0]
    return WorldCosts(date.today().isoformat(), machine, episodes, load, reset, turn, megabytes), turns / episodes


async def work(world: str, core: int, episodes: int) -> None:
    """Be a worker: play on one core, three episodes at once, and print the episodes per second after the first ones."""
    os.sched_setaffinity(0, {core})
    left = iter(range(episodes))
    async with shared_browsers():
        envs = [made(world) for _ in range(3)]
        for env in envs:
            await played_by_oracle(env, 0)

        async def player(env: miniwob.MiniWob | Errands) -> None:
            for seed in left:
                await played_by_oracle(env, seed)

        began = time.monotonic()
        await asyncio.gather(*map(player, envs))
        print(episodes / (time.monotonic() - began))
        for env in envs:
            await env.close()


async def measured_rate(world: str, workers: int, episodes: int) -> float:
    """Return the episodes per second of workers that each have one core."""
    cores = sorted(os.sched_getaffinity(0))[:workers]
    started = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, __file__, "--worker", world, "--core", str(core), "--episodes", str(episodes)),
            stdout=asyncio.subprocess.PIPE,
        )
        for core in cores
    ]
    printed = [(await one.communicate())[0] for one in started]
    return sum(map(float, printed))


async def planned(episodes: int, write: bool) -> list[Row]:
    """Measure the constants of both worlds, and compare what they predict with workers."""
    found = {world: await costs_of(world, episodes) for world in ("miniwob", "site")}
    if write:
        kept = {world: costs._asdict() for world, (costs, _) in found.items()}
        WORLDS.write_text(json.dumps(kept, indent=2) + "\n")
    rows = []
    for world, (costs, turns) in found.items():
        rows += [
            Row(f"{world}: reset, CPU s", costs.reset_cpu, ""),
            Row(f"{world}: turn, CPU s", costs.turn_cpu, ""),
            Row(f"{world}: MB per episode under way", costs.megabytes, ""),
            *[await compared(world, costs, turns, workers) for workers in (1, 2)],
        ]
    return rows


async def compared(world: str, costs: WorldCosts, turns: float, workers: int) -> Row:
    """Compare the rate that the constants predict for a number of workers with the measured one."""
    cpu = costs.reset_cpu + turns * costs.turn_cpu
    predicted = simulate(Constants.read(), workers=workers, concurrency=3, turns=round(turns), episode_cpu=cpu).rate
    off = abs(predicted / await measured_rate(world, workers, EPISODES_PER_WORKER) - 1)
    return Row(f"{world}: predicted rate of {workers} workers, off by", off, "<= 0.2")


async def main(quick: bool, only: str, write: bool) -> None:
    parts: dict[str, Callable[[], Awaitable[list[Row]]]] = {
        "resets": lambda: resets(("forum", "tracker") if quick else TOWNS, 3 if quick else 15),
        "steps": lambda: steps(3 if quick else 15),
        "crowd": lambda: crowd(*((4, 12, 0.0) if quick else (32, 500, 20.0))),
        "plan": lambda: planned(3 if quick else 10, write),
    }
    rows: list[Row] = []
    for name, measure in parts.items():
        if name == only or (not only and not (quick and name == "plan")):
            found = await measure()
            for row in found:
                print(f"{row.what}: {row.value:.4g} {row.limit}", file=sys.stderr, flush=True)
            rows += found
    finish(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", choices=("resets", "steps", "crowd", "plan"), default="")
    parser.add_argument("--write", action="store_true", help="keep the constants of the part plan")
    parser.add_argument("--worker", default="", help=argparse.SUPPRESS)
    parser.add_argument("--core", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--episodes", type=int, default=1, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.quick and given.write:
        parser.error("--write keeps constants of 10 episodes: leave out --quick")
    if given.worker:
        asyncio.run(work(given.worker, given.core, given.episodes))
    else:
        asyncio.run(main(given.quick, given.only, given.write))
