"""The rows of the crafting worlds: every goal by the oracle, determinism, hostile actions, cost of a step."""

import random
from time import process_time

from rows import Row
from survival import survival_rows
from tests.suite.many_actions import Player
from tests.suite.same_everywhere import BOTH, EVERY_CASE, different_hashes

from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Env
from palestra.registry import list_envs, make, spec
from palestra.trajectory import Task

IDS = [known.id for known in list_envs("craft:*")]
PIECES = [
    "get",
    "craft",
    "using",
    "inventory",
    "Action:",
    ",",
    " ",
    "\n",
    "1",
    "0",
    "99999999",
    "-1",
    "planks",
    "stick",
    "٣",
    "\ud800",
]


def rows(quick: bool) -> list[Row]:
    """All rows; ``quick`` plays fewer episodes and actions."""
    cases = [(1, "0"), (2, "1")] if quick else EVERY_CASE
    different = different_hashes(IDS, seeds=1 if quick else 10, wandering=BOTH, cases=cases)
    return [
        Row("goals of Minecraft that the oracle crafts, of 544", minecraft_solved(), ">= 544"),
        Row("share of invented tasks that the oracle solves", invented_solved(10 if quick else 200), ">= 1"),
        Row("different sha256 over workers and hash seeds", different, "<= 1"),
        *survival_rows(IDS, 300 if quick else 10_000, hostile_player()),
        Row("step, mean over the oracle's plans, least of 5 rounds, µs CPU", step_cost(200 if quick else 2000), "<= 30"),
    ]


def solved(env: Env, task: Task) -> float:
    """The score of the oracle."""
    env.reset(task=task)
    while True:
        step = env.step(env.oracle())
        if step.terminated or step.truncated:
            return step.reward


def minecraft_solved() -> float:
    total = 0.0
    for known in list_envs("craft:minecraft-depth?"):
        found = known.read_rows()
        assert found is not None
        with make(known.id) as env:
            total += sum(solved(env, Task(known.id, 0, index=index)) for index in range(len(found)))
    return total


def invented_solved(tasks: int) -> float:
    scores = []
    for known in list_envs("craft:invented-*"):
        with make(known.id) as env:
            scores += [solved(env, Task(known.id, seed)) for seed in range(tasks)]
    return sum(scores) / len(scores)


def hostile_player() -> Player:
    """A player of texts that no world expects, and of words of commands in any order."""
    rng = random.Random(0)
    texts = [*SHORT.values(), *(grow(300) for grow in GROWING.values())]
    return lambda *_: rng.choice(texts) if rng.random() < 0.5 else " ".join(rng.choices(PIECES, k=rng.randrange(12)))


def step_cost(steps: int) -> float:
    """CPU time of ``step`` alone over the commands of the oracle, in µs.

    The least of five rounds over the same plans, each timed as a whole: other processes can only make a step slower.
    """
    plans = [planned(seed) for seed in range(steps // 10)]
    taken = sum(len(actions) for _, actions in plans)
    best = float("inf")
    for _ in range(5):
        for seed, (env, _) in enumerate(plans):
            env.reset(seed=seed)
        at = process_time()
        for env, actions in plans:
            for action in actions:
                env.step(action)
        best = min(best, process_time() - at)
    return best / taken * 1e6


def planned(seed: int) -> tuple[Env, list[str]]:
    """An environment without adapters, and the commands with which the oracle solves its task ``seed``."""
    known = spec(IDS[seed % len(IDS)])
    env = known.factory()(**known.kwargs)
    assert isinstance(env, Env)
    env.reset(seed=seed)
    actions, ended = [], False
    while not ended:
        actions.append(env.oracle())
        ended = env.step(actions[-1]).terminated
    return env, actions
