"""Plays of the worlds of functions (BFCL), small in the tests and at full size in ``benchmarks/worlds_*.py``.

Run as a script, ``python tool_worlds.py WORKERS TASKS ID…`` plays TASKS tasks of each id in WORKERS processes and prints one
sha256 for all of them.
"""

import hashlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from palestra.calls import format_call
from palestra.checking.hostile import GROWING, SHORT
from palestra.core import Step
from palestra.registry import make
from palestra.trajectory import Task, ToolCall, text_of

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


# ---------------------------------------------------------------------------------------------------------- determinism


def digest(share: list[Play]) -> dict[Play, str]:
    """The sha256 of each play."""
    found = {}
    for play in share:
        with make(play[0]) as env:
            texts = [repr((text_of(step.observation), step[1:4], step.info)) for step in frames(env, play)]
        found[play] = hashlib.sha256("\n".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    return found


def whole_digest(workers: int, tasks: int, ids: list[str]) -> str:
    """One sha256 of all plays, played by ``workers`` processes."""
    every = [(id, index, player) for id in ids for index in range(tasks) for player in ("oracle", "random")]
    found: dict[Play, str] = {}
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for part in pool.map(digest, [every[place::workers] for place in range(workers)]):
            found.update(part)
    return hashlib.sha256("".join(found[play] for play in every).encode()).hexdigest()


def digests_elsewhere(ids: list[str], tasks: int, workers: Iterable[int] = (1, 2, 8)) -> dict[tuple[int, str], str]:
    """The digests with these numbers of workers and two hash seeds, each in a process of its own."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), *(part for part in sys.path if part)])
    found = {}
    for count, seed in product(workers, ("1", "4242")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}
        command = [sys.executable, __file__, str(count), str(tasks), *ids]
        found[count, seed] = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout.strip()
    return found


# ----------------------------------------------------------------------------------------------------- hostile actions

_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**17,
    -(10**400),
    9**99,
    1e308,
    -0.0,
    "",
    "../../etc/passwd",
    "__class__",
    "\x00",
    "{0.__class__}",
    "a" * 10_000,
    [],
    [[[]]],
    {},
    {"a": {"b": [1]}},
    [1, "x", None],
    "9999-99-99",
    "-1",
    "٣",
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


def many_actions(id: str, kind: str, count: int) -> int:
    """Take ``count`` random or hostile actions, check every step, and return the number of episodes."""
    rng = np.random.default_rng(7)
    episodes = taken = 0
    with make(id) as env:
        low, high = env.unwrapped.reward_range
        while taken < count:
            _, info = env.reset(task=Task(id, episodes))
            episodes += 1
            schemas = {schema["name"]: schema for schema in info["tools"]}
            ended = False
            while not ended and taken < count:
                step = env.step(env.sample_random_action() if kind == "random" else hostile_action(schemas, rng))
                taken += 1
                assert low <= step.reward <= high
                assert not (step.terminated and step.truncated)
                ended = step.terminated or step.truncated
    return episodes


if __name__ == "__main__":
    print(whole_digest(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
