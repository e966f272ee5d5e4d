"""Plays of TextWorld's challenges, small in the tests and at full size in ``benchmarks/worlds_textworld.py``."""

import random
import warnings
from collections.abc import Iterable
from typing import Any

from tests.suite.many_actions import Player

from palestra import make
from palestra.checking.hostile import GROWING, SHORT
from palestra.trajectory import Task

LEVELS = [f"text:{name}-{level}" for name in ("coin", "treasure", "cooking", "simple") for level in ("easy", "medium", "hard")]

_PIECES = [
    *("take", "go", "open", "put", "insert", "examine", "eat", "cook", "coin", "north", "on", "into", "with"),
    *("from", "save", "script", "restart", "quit", "tw-print", "then", ".", ",", "all", "it", "me", "y", "1", "'"),
    *("-", "\x00"),
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


def hostile_action(rng: random.Random) -> str:
    """A text that no game expects, or words of commands in any order."""
    if rng.random() < 0.4:
        return rng.choice([*SHORT.values(), *(grow(300) for grow in GROWING.values())])
    return rng.choice(("", "look\n", "> ")) + " ".join(rng.choices(_PIECES, k=rng.randrange(1, 8)))


def hostile_player() -> Player:
    """A player of hostile actions, the same ones every time."""
    rng = random.Random(7)
    return lambda *_: hostile_action(rng)
