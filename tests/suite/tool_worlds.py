"""Plays of the worlds of functions, small in the tests and at full size in ``benchmarks/worlds_*.py``."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from tests.suite.many_actions import Player

from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Step
from palestra.registry import make
from palestra.trajectory import Task, ToolCall
from palestra.trajectory.calls import format_call

Play = tuple[str, int, str]
"""An id, an index and a player."""


def frames(env: Any, play: Play) -> Iterator[Step]:
    """The steps of an episode; the first holds the first observation."""
    id, index, player = play
    observation, info = env.reset(task=Task(id, index, index=index))
    yield Step(observation, 0.0, False, False, info)
    ended = False
    while not ended:
        step: Step = env.step(env.oracle() if player == "oracle" else env.sample_random_action())
        yield step
        ended = step.terminated or step.truncated


class Solved(NamedTuple):
    """What the oracle achieved."""

    tasks: int
    failed: list[int]


def oracle_plays(id: str, indices: Iterable[int]) -> Solved:
    """Play the tasks with the oracle."""
    solved = {}
    with make(id) as env:
        for index in indices:
            *_, last = frames(env, (id, index, "oracle"))
            solved[index] = last.reward == 1.0 and last.info["success"] is True
    return Solved(len(solved), [index for index, right in solved.items() if not right])


_VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 10**17, -(10**400), 9**99, 1e308, -0.0, "", "../../etc/passwd", "__class__", "\x00", "{0.__class__}"),
    *("a" * 10_000, [], [[[]]], {}, {"a": {"b": [1]}}, [1, "x", None], "9999-99-99", "-1", "٣"),
)


def hostile_action(schemas: Mapping[str, Mapping[str, Any]], rng: np.random.Generator) -> str:
    """A call with values that no function expects, a call of what is not a function, or a text that is no call."""
    kind = rng.random()
    if kind < 0.15:
        texts = [*SHORT.values(), *(grow(300) for grow in GROWING.values())]
        return str(texts[int(rng.integers(len(texts)))])
    names = [*schemas] if kind < 0.9 else ["__init__", "_load_scenario", "eval", "", "os.system"]
    calls = []
    for _ in range(int(rng.integers(1, 4))):
        name = names[int(rng.integers(len(names)))]
        known = list(schemas.get(name, {}).get("parameters", {}).get("properties", {}))
        chosen = [one for one in [*known, "self", "extra"] if rng.random() < (0.8 if one in known else 0.03)]
        calls.append(format_call(ToolCall(name, {one: _VALUES[int(rng.integers(len(_VALUES)))] for one in chosen})))
    return "".join(calls)[: int(rng.integers(1, 30_000))]


def hostile_player() -> Player:
    """A player of hostile actions, the same ones every time."""
    rng = np.random.default_rng(7)
    return lambda _, info: hostile_action({schema["name"]: schema for schema in info["tools"]}, rng)
