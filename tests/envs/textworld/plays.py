"""Plays of TextWorld's challenges, small in the tests and at full size in ``benchmarks/worlds_textworld.py``."""

import random
import warnings
from collections.abc import Iterable
from typing import Any

from palestra import make
from palestra.checking.hostile import GROWING, SHORT
from palestra.trajectory import Task

LEVELS = [f"text:{name}-{level}" for name in ("coin", "treasure", "cooking", "simple") for level in ("easy", "medium", "hard")]

_PIECES = [
    "take",
    "go",
    "open",
    "put",
    "insert",
    "examine",
    "eat",
    "cook",
    "coin",
    "north",
    "on",
    "into",
    "with",
    "from",
    "save",
    "script",
    "restart",
    "quit",
    "tw-print",
    "then",
    ".",
    ",",
    "all",
    "it",
    "me",
    "y",
    "1",
    "'",
    "-",
    "\x00",
]


def oracle_wins(id: str, seeds: Iterable[int]) -> int:
    """How many games the oracle wins with all points."""
    won = 0
    with make(id) as env:
        for seed in seeds:
            env.reset(task=Task(id, seed))
            total, ended = 0.0, False
            while not ended:
                step = env.step(env.oracle())
                total += step.reward
                ended = step.terminated or step.truncated
            won += bool(step.info["success"]) and abs(total - 1.0) < 1e-9
    return won


def bare_game(env: Any) -> Any:
    """The game of a running episode in TextWorld itself, at its start."""
    import textworld

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        game = textworld.start(str(env._file.story), textworld.EnvInfos(won=True, lost=True, score=True))
        game.reset()
    return game


def bare_outputs(env: Any, commands: list[str]) -> list[str]:
    """What TextWorld itself answers to ``commands`` in the game of a running episode."""
    game = bare_game(env)
    outputs = [str(game.step(command.lower())[0]["feedback"]) for command in commands]
    game.close()
    return outputs


def hostile_action(rng: random.Random) -> str:
    """A text that no game expects, or words of commands in any order."""
    if rng.random() < 0.4:
        return rng.choice([*SHORT.values(), *(grow(300) for grow in GROWING.values())])
    return rng.choice(("", "look\n", "> ")) + " ".join(rng.choices(_PIECES, k=rng.randrange(1, 8)))


def many_actions(id: str, kind: str, count: int, games: int) -> int:
    """Take ``count`` random or hostile actions in the first games, check every step, and return the number of episodes."""
    rng = random.Random(7)
    episodes = taken = 0
    with make(id) as env:
        low, high = env.unwrapped.reward_range
        while taken < count:
            env.reset(task=Task(id, episodes % games))
            env.seed_actions(episodes)
            episodes += 1
            ended = False
            while not ended and taken < count:
                step = env.step(env.sample_random_action() if kind == "random" else hostile_action(rng))
                taken += 1
                assert low <= step.reward <= high
                assert not (step.terminated and step.truncated)
                ended = step.terminated or step.truncated
    return episodes
