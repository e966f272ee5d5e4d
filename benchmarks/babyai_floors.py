"""The floors of BabyAI's levels: the mean score of the best constant answer, with a 95 % interval over tasks.

    python benchmarks/babyai_floors.py                    # all 90 levels, about 15 CPU minutes
    python benchmarks/babyai_floors.py GoToLocal Unlock   # some of them
    python benchmarks/babyai_floors.py --quick

Candidates are five primitive actions and the most frequent last actions of the oracle on some tasks. The candidate
that is best on other tasks is measured on a third set of tasks, so the choice does not favor the figure.

Left out: the ids with primitive actions, which declare 0, and constant answers that the oracle never gives.
"""

import argparse
import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rows import Row, finish

from palestra.foundation.statistics import Score, mean_interval
from palestra.worlds.babyai.env import BabyAI
from palestra.worlds.babyai.levels import FLOORS, LEVELS

SOME = ("GoToLocal", "UnlockLocal")
ON_THE_SPOT = ("turn left", "turn right", "drop", "toggle")
BLIND = ("move forward", *ON_THE_SPOT)
CIRCLES = 12
"""Turns after which a player who stays on the spot gets nothing more: three full circles, for missions of two parts."""
ASKED, CHOSEN, MEASURED = 40, 30, 150
"""Tasks that the oracle plays, tasks by which a candidate is chosen, and tasks on which it is measured."""
ANSWERS = 10
"""The oracle's answers that are tried."""
STANDSTILL = 3
"""A world does not change by itself. After so many impossible actions in a row, a constant player gets nothing more."""


class Floor(NamedTuple):
    """The best constant answer, and its mean score with the interval."""

    answer: str
    mean: float
    low: float
    high: float


def floor_of(level: str, scale: float = 1.0) -> Floor:
    """Measure the floor of ``level``."""
    env = BabyAI(level)
    asked, chosen, measured = (math.ceil(scale * count) for count in (ASKED, CHOSEN, MEASURED))
    last = Counter(answer for seed in range(asked) if (answer := _last_answer(env, seed)))
    candidates = [answer for answer, _ in (last + Counter(BLIND)).most_common(ANSWERS + len(BLIND))]
    trials = range(10_000, 10_000 + chosen)
    best = max(candidates, key=lambda answer: sum(_scores(env, answer, trials)))
    scores = [Score((), seed, value) for seed, value in enumerate(_scores(env, best, range(20_000, 20_000 + measured)))]
    found = mean_interval(scores, bounds=(0.0, 1.0))
    return Floor(best, found.mean, found.low, found.high)


def _last_answer(env: BabyAI, seed: int) -> str:
    """The oracle's last action in a task; empty if it finds no plan."""
    env.reset(seed=seed)
    while True:
        answer = env.plan_next() or ""
        if not answer:
            return ""
        step = env.step(answer)
        if step.terminated or step.truncated:
            return answer


def _scores(env: BabyAI, answer: str, seeds: Iterable[int]) -> list[float]:
    return [_score(env, answer, seed) for seed in seeds]


def _score(env: BabyAI, answer: str, seed: int) -> float:
    env.reset(seed=seed)
    refused = turns = 0
    while refused < STANDSTILL and not (answer in ON_THE_SPOT and turns == CIRCLES):
        step = env.step(answer)
        if step.terminated or step.truncated:
            return step.reward
        refused = refused + 1 if step.info.get("format_error") else 0
        turns += 1
    return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("levels", nargs="*")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    higher = 0
    rows = []
    for level in options.levels or (SOME if options.quick else LEVELS):
        found = floor_of(level, 0.2 if options.quick else 1.0)
        higher += found.low > FLOORS.get(level, 0.0)
        text = f"{level}: {found.mean:.4f} [{found.low:.4f}, {found.high:.4f}] {found.answer}"
        print(text, flush=True)
        rows.append(Row(f"{level}, score of '{found.answer}'", found.mean, ""))
    finish([*rows, Row("levels with a floor above the declared one, outside the interval", higher, "<= 0")])


if __name__ == "__main__":
    main()
