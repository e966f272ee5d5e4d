r"""What the spine costs: vector steps, barrier-free rollouts, resets and the import, each over the bare thing in the same run.

    python benchmarks/spine.py            # a few minutes
    python benchmarks/spine.py --quick    # under a minute, fewer rounds
    python benchmarks/peers/build.sh      # once, to have GEM and Gymnasium beside ours

The bare vector loop calls ``step`` and ``reset`` of the very same environments and keeps nothing. The bare rollout is one
asyncio task per episode that sleeps the same latencies and steps the same environments. Left out: anything with a model.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from rows import Row, finish, interleaved, stay_on_one_core

import palestra
from palestra import Completion, Conversation
from palestra.core import Env
from palestra.rollouts import make_vec
from palestra.suite.games.guess_the_number import GuessTheNumber
from palestra.suite.games.sudoku import Sudoku

GAME = "game:GuessTheNumber-v0-easy"
TURNS = 8
ROUNDS = 7
"""Repeats of a rollout beside the bare one."""
MOST_SPREAD = 0.1
"""If repeats differ by more, they are measured again, at most twice; what differs least counts."""
PEERS = Path(__file__).parent / "peers"


# ---------------------------------------------------------------------------------------------------------- the vector


def bare_vector(n: int, steps: int) -> float:
    """CPU seconds per environment step of a plain loop with resets."""
    envs: list[Env] = [GuessTheNumber(low=1, high=10, max_turns=4) for _ in range(n)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed)
    actions = guesses(n)
    seed = n
    began = process_time()
    for step in range(steps):
        for env, action in zip(envs, actions[step % 10], strict=True):
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                seed += 1
                env.reset(seed=seed)
    return (process_time() - began) / (steps * n)


def our_vector(n: int, steps: int) -> float:
    """The same through ``VectorEnv.step``."""
    actions = guesses(n)
    with make_vec(GAME, n) as vec:
        vec.reset(seed=0)
        began = process_time()
        for step in range(steps):
            vec.step(actions[step % 10])
        return (process_time() - began) / (steps * n)


def guesses(n: int) -> list[list[str]]:
    """Ten rounds of actions for ``n`` environments."""
    return [[f"\\boxed{{{(i + step) % 10 + 1}}}" for i in range(n)] for step in range(10)]


def vector_rows(quick: bool) -> list[Row]:
    rows = []
    for n in (64, 512, 4096):
        steps = max((20_000 if quick else 80_000) // n, 4)
        bare, ours, ratio = interleaved(partial(bare_vector, n, steps), partial(our_vector, n, steps), 7)
        print(f"vector N={n}: bare {bare * 1e6:.2f} µs, ours {ours * 1e6:.2f} µs a step")
        rows.append(Row(f"VectorEnv.step CPU over the bare loop, N={n}", ratio, "<= 1.3"))
    return rows


# --------------------------------------------------------------------------------------------------------- the rollout


class LongTailedModel:
    """Answers each turn of each episode after a latency of its own; every guess is out of range, so all turns are played."""

    name = "long-tailed"

    def __init__(self, latencies: npt.NDArray[np.float64]) -> None:
        self.latencies = latencies

    async def act(self, conversation: Conversation) -> Completion:
        turn = conversation.memory.get("turn", 0)
        conversation.memory["turn"] = turn + 1
        await asyncio.sleep(self.latencies[conversation.task.seed, turn])
        return Completion("\\boxed{0}")


class EightTurns(GuessTheNumber):
    """A game that lasts eight turns when every guess is out of range."""

    def __init__(self) -> None:
        super().__init__(low=1, high=10, max_turns=TURNS)


def latencies(episodes: int, scale: float) -> npt.NDArray[np.float64]:
    """Log-normal with median 0.2 s and 99th percentile 2 s, times ``scale``."""
    sigma = np.log(10) / 2.3263
    return scale * np.random.default_rng(0).lognormal(np.log(0.2), sigma, (episodes, TURNS))


async def bare_rollout(waits: npt.NDArray[np.float64]) -> None:
    async def episode(index: int) -> None:
        env = EightTurns()
        env.reset(seed=index)
        for wait in waits[index]:
            await asyncio.sleep(wait)
            env.step("\\boxed{0}")

    async with asyncio.TaskGroup() as group:
        for index in range(len(waits)):
            group.create_task(episode(index))


async def our_rollout(waits: npt.NDArray[np.float64]) -> None:
    tasks = [palestra.Task("bench:EightTurns-v0", index) for index in range(len(waits))]
    played: AsyncIterator[palestra.Trajectory] = palestra.rollout(tasks, LongTailedModel(waits), concurrency=len(waits))
    turns = [len(trajectory.turns) async for trajectory in played]
    assert turns == [TURNS] * len(waits)


def rollout_rows(quick: bool) -> list[Row]:
    rows = []
    for episodes, most_wall in ((512, 1.05), (4096, 1.10)):
        waits = latencies(episodes, 0.5 if quick else 1.0)
        walls, cpus = rollout_ratios(waits, 1 if quick else ROUNDS)
        for _ in range(0 if quick else 2):
            if max(spread(walls), spread(cpus)) <= MOST_SPREAD:
                break
            print(f"rollout {episodes}: the repeats differ by {max(spread(walls), spread(cpus)):.0%}, measured again")
            again = rollout_ratios(waits, ROUNDS)
            walls, cpus = min((walls, cpus), again, key=lambda pair: max(map(spread, pair)))
        about = f"{episodes} episodes" + ("" if quick else f" (the middle half of {ROUNDS} repeats differs by")
        for what, ratios, most in (("wall", walls, most_wall), ("CPU per turn", cpus, 1.8)):
            noted = about if quick else f"{about} {spread(ratios):.0%})"
            rows.append(Row(f"rollout {what} over bare asyncio, {noted}", statistics.median(ratios), f"<= {most}"))
    return rows


def rollout_ratios(waits: npt.NDArray[np.float64], rounds: int) -> tuple[list[float], list[float]]:
    """The wall and the CPU of a rollout over those of the bare one, in alternating rounds."""
    walls, cpus = [], []
    for _ in range(rounds):
        bare, ours = timed(bare_rollout(waits)), timed(our_rollout(waits))
        walls.append(ours[0] / bare[0])
        cpus.append(ours[1] / bare[1])
        turns = waits.size
        print(f"rollout {len(waits)}: wall {bare[0]:.2f} → {ours[0]:.2f} s, ", end="")
        print(f"CPU {bare[1] / turns * 1e6:.1f} → {ours[1] / turns * 1e6:.1f} µs a turn")
    return walls, cpus


def timed(work: Coroutine[Any, Any, None]) -> tuple[float, float]:
    """The wall and the CPU seconds of ``work`` in an event loop of its own."""
    wall, cpu = perf_counter(), process_time()
    asyncio.run(work)
    return perf_counter() - wall, process_time() - cpu


def spread(ratios: list[float]) -> float:
    """By how much the middle half of repeated measurements differs, over their median."""
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return (high - low) / middle


# -------------------------------------------------------------------------------------------------- reset, import, peers


def sudoku_row(quick: bool) -> Row:
    env = Sudoku(**palestra.registry.spec("game:Sudoku-v0-hard").kwargs)
    taken = []
    for seed in range(100 if quick else 500):
        began = process_time()
        env.reset(seed=seed)
        taken.append(process_time() - began)
    return Row("Sudoku 9×9 hard reset, median ms", statistics.median(taken) * 1e3, "<= 5")


def import_cpu(module: str) -> float:
    # As after "pip install", which compiles: the first round writes the bytecode even where the shell forbids it.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def import_row(quick: bool) -> Row:
    gymnasium, ours, _ = interleaved(lambda: import_cpu("gymnasium"), lambda: import_cpu("palestra"), 5 if quick else 11)
    print(f"import: gymnasium {gymnasium * 1e3:.0f} ms, palestra {ours * 1e3:.0f} ms of CPU (least of each)")
    return Row("CPU of import palestra over import gymnasium", ours / gymnasium, "<= 1.0")


def peer_rows() -> list[Row]:
    """GEM's figures from its own venv, reported beside ours; none if it was not built."""
    python = PEERS / ".venv-gem" / "bin" / "python"
    if not python.exists():
        print("peers: not built (benchmarks/peers/build.sh)")
        return []
    found = subprocess.run([python, PEERS / "gem_spine.py"], check=True, capture_output=True, text=True).stdout
    return [Row(f"GEM: {what}", value, "") for what, value in json.loads(found.splitlines()[-1]).items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shorter waits: under 50 s")
    quick = parser.parse_args().quick
    stay_on_one_core()
    palestra.register("bench:EightTurns-v0", EightTurns)
    rows = [*vector_rows(quick), *rollout_rows(quick), sudoku_row(quick), import_row(quick)]
    if not quick:
        rows += peer_rows()
    finish(rows)


if __name__ == "__main__":
    main()
