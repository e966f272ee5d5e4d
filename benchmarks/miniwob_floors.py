"""The floors of MiniWoB++: the mean reward of a player that ignores the task.

    python benchmarks/miniwob_floors.py                            # all 130 tasks, about an hour on one core
    python benchmarks/miniwob_floors.py click-test click-dialog    # some of them
    python benchmarks/miniwob_floors.py --quick

Two players are tried. The first one clicks on random elements, and in tasks that need points also at random points. The second
one repeats the same click. This click is chosen on other episodes than those on which it is measured, so the choice does not
favor the figure. The higher mean is the floor. It is measured with and without the reward -1 for a wrong end. A player that
does nothing has the reward 0, so no floor is lower than 0.

Left out: constant actions that type a text.
"""

import argparse
import asyncio
import math
from collections.abc import Iterable
from typing import NamedTuple

from rows import Row, finish

from palestra.worlds.web.miniwob.env import MiniWob
from palestra.worlds.web.miniwob.floors import Floor, floor_of
from palestra.worlds.web.miniwob.tasks import TASKS

SOME = ("click-test", "click-test-2", "click-dialog")
CHOSEN, MEASURED = 5, 20
"""Episodes by which a constant click is chosen, and episodes on which each player is measured."""
CONSTANTS = tuple(f"click [e{number}]" for number in range(1, 7))
REPEATS = 4
"""How often a constant click is sent in an episode."""
AT_ONCE = 6
"""Tasks that are measured at the same time: the browser works on one while Python reads the page of another."""
MARGIN = 3.0
"""A mean counts as higher than the declared floor if it is higher by so many standard errors of the measurement, and 0.01."""


class Found(NamedTuple):
    """A player, and its rewards with the penalty."""

    player: str
    rewards: list[float]


async def measure(name: str, scale: float = 1.0) -> tuple[Found, Found]:
    """Measure the better player of the task ``name`` with the penalty, and the better one without it."""
    chosen, measured = (math.ceil(scale * count) for count in (CHOSEN, MEASURED))
    env = MiniWob(name)
    try:
        random = Found("random clicks", [await _random(env, seed) for seed in range(measured)])
        trials = {click: [await _constant(env, click, seed) for seed in _seeds(10_000, chosen)] for click in CONSTANTS}
        best = max(CONSTANTS, key=lambda click: _mean(trials[click]))
        likely = max(CONSTANTS, key=lambda click: _mean(_forgiven(trials[click])))
        # A click that never paid is not measured: to do nothing has the reward 0, too.
        repeated = {
            click: await _repeated(env, click, _seeds(20_000, measured) if max(trials[click]) > 0 else ())
            for click in {best, likely}
        }
    finally:
        await env.close()
    hard = max(random, repeated[best], key=lambda found: _mean(found.rewards))
    soft = max(random, repeated[likely], key=lambda found: _mean(_forgiven(found.rewards)))
    return hard, soft


async def _repeated(env: MiniWob, click: str, seeds: Iterable[int]) -> Found:
    return Found(click, [await _constant(env, click, seed) for seed in seeds])


async def _random(env: MiniWob, seed: int) -> float:
    await env.reset(seed=seed)
    while True:
        step = await env.step(await env.sample_random_action())
        if step.terminated or step.truncated:
            return step.reward


async def _constant(env: MiniWob, click: str, seed: int) -> float:
    await env.reset(seed=seed)
    for _ in range(REPEATS):
        step = await env.step(click)
        if step.terminated or step.truncated:
            return step.reward
    return 0.0


def _seeds(first: int, count: int) -> range:
    return range(first, first + count)


def _mean(rewards: list[float]) -> float:
    return sum(rewards) / len(rewards) if rewards else 0.0


def _forgiven(rewards: list[float]) -> list[float]:
    return [max(0.0, reward) for reward in rewards]


def _up(mean: float) -> float:
    """Return the mean as a floor: at least 0, rounded up to 0.01."""
    return min(1.0, math.ceil(round(max(0.0, mean) * 100, 6)) / 100)


def _is_higher(rewards: list[float], declared: float) -> bool:
    mean = _mean(rewards)
    squares = sum((reward - mean) ** 2 for reward in rewards)
    return bool(rewards) and mean > declared + 0.01 + MARGIN * math.sqrt(squares) / len(rewards)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    names = options.tasks or (SOME if options.quick else sorted(TASKS))
    finish(asyncio.run(_rows(names, 0.2 if options.quick else 1.0)))


async def _rows(names: Iterable[str], scale: float) -> list[Row]:
    higher = 0
    rows = []
    seats = asyncio.Semaphore(AT_ONCE)

    async def seated(name: str) -> tuple[str, Found, Found]:
        async with seats:
            return (name, *await measure(name, scale))

    for measured in asyncio.as_completed([seated(name) for name in names]):
        name, hard, soft = await measured
        declared, forgiven = floor_of(name), _forgiven(soft.rewards)
        higher += _is_higher(hard.rewards, declared.with_penalty) or _is_higher(forgiven, declared.without_penalty)
        floor = Floor(_up(_mean(hard.rewards)), _up(_mean(forgiven)))
        print(
            f'    "{name}": Floor({floor.with_penalty:.2f}, {floor.without_penalty:.2f}),  # {hard.player}; {soft.player}',
            flush=True,
        )
        rows.append(Row(f"{name}, mean reward of '{soft.player}' without the penalty", floor.without_penalty, ""))
    return [*rows, Row("tasks with a floor above the declared one, beyond the noise", higher, "<= 0")]


if __name__ == "__main__":
    main()
