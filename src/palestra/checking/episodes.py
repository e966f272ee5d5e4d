"""Playing an episode and writing down everything about it, whatever the environment does wrong.

Nothing here judges. An exception, a malformed step or a missing end is recorded in the ``Episode``; the checks read it there.
Every episode starts from the same state of the global generators, so that an environment that uses them is told so by
the one check that is about them and does not look random to all others.
"""

import hashlib
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter, process_time
from typing import Any

import numpy as np

from palestra.checking.report import shown
from palestra.core import Env, Step
from palestra.encoding import encode_json
from palestra.trajectory import Task

__all__ = [
    "Act",
    "Episode",
    "Taken",
    "as_random",
    "as_scripted",
    "by_oracle",
    "difference",
    "global_generators",
    "play",
    "told",
]

Act = Callable[[Env, int], str]
"""Who acts: the environment and the number of the turn (from 0) to the action."""


@dataclass(frozen=True)
class Taken:
    """One action and what came of it."""

    action: str
    step: Step
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """What it cost this process: the same on a busy machine, unlike ``seconds``."""

    @property
    def frame(self) -> str:
        """It as a line that can be compared."""
        return _frame(self.action, *self.step)


@dataclass(frozen=True)
class Episode:
    """One episode, as it went."""

    task: Task
    actor: str
    observation: Any
    info: Any
    steps: tuple[Taken, ...]
    reset_seconds: float
    error: str = ""
    """Where the environment raised and what, if it did."""

    @property
    def ended(self) -> bool:
        """Whether the environment said so itself."""
        return bool(self.steps) and bool(self.steps[-1].step.terminated or self.steps[-1].step.truncated)

    @property
    def actions(self) -> tuple[str, ...]:
        """What was done."""
        return tuple(taken.action for taken in self.steps)

    @property
    def score(self) -> float | None:
        """The sum of rewards; ``None`` if the episode failed or a reward is not a finite number."""
        try:
            total = math.fsum(float(taken.step.reward) for taken in self.steps)
        except (TypeError, ValueError, OverflowError):
            return None
        return None if self.error or not math.isfinite(total) else total

    @property
    def seconds(self) -> float:
        """How long the environment took."""
        return self.reset_seconds + sum(taken.seconds for taken in self.steps)

    @cached_property
    def frames(self) -> tuple[str, ...]:
        """The episode as lines that can be compared and sent to another process: the start, each step, the error if any."""
        steps = (taken.frame for taken in self.steps)
        return (_frame(self.observation, self.info), *steps, *([self.error] if self.error else []))


def play(make: Callable[[], Env], task: Task, act: Act, limit: Callable[[Any], int], actor: str = "") -> Episode:
    """Play ``task`` on what ``make`` gives until it ends, raises, or ``limit(info of the reset)`` turns are taken."""
    steps: list[Taken] = []
    observation: Any = None
    info: Any = None
    reset_seconds, error, where = 0.0, "", "building it"
    try:
        env = make()
        where = "reset"
        began = perf_counter()
        observation, info = env.reset(task=task)
        reset_seconds = perf_counter() - began
        for turn in range(limit(info)):
            where = f"turn {turn + 1}"
            action = act(env, turn)
            if not isinstance(action, str):
                raise TypeError(f"{actor} gave a {type(action).__name__} as its action, expected text")
            began, cpu_began = perf_counter(), process_time()
            step = Step(*env.step(action))
            steps.append(Taken(action, step, perf_counter() - began, process_time() - cpu_began))
            if step.terminated or step.truncated:
                break
    except Exception as raised:  # whatever an author's code does is a finding, not our end
        error = f"{where}: {told(raised)}"
    return Episode(task, actor, observation, info, tuple(steps), reset_seconds, error)


def told(error: BaseException) -> str:
    """An exception in one safe line."""
    return f"{type(error).__name__}: {shown(str(error), 200)}"


# ------------------------------------------------------------------------------------------------------------- who acts


def as_random(seed: int) -> Act:
    """The environment's own random actions, from ``seed``."""

    def act(env: Env, turn: int) -> str:
        if turn == 0:
            env.seed_actions(seed)
        return env.sample_random_action()

    return act


def by_oracle(env: Env, turn: int) -> str:
    """The environment's own perfect player."""
    return env.oracle()


def as_scripted(actions: Sequence[str], *, draw: bool = False) -> Act:
    """These actions in order, the last one again and again; with ``draw`` random ones are drawn in between and thrown away."""

    def act(env: Env, turn: int) -> str:
        if draw:
            env.sample_random_action()
        return actions[min(turn, len(actions) - 1)]

    return act


# ------------------------------------------------------------------------------------------------- what must be the same


@contextmanager
def global_generators(seed: int) -> Iterator[None]:
    """The global generators of ``random`` and NumPy, seeded for the length of the block and put back after it."""
    before = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])


def difference(expected: Sequence[str], got: Sequence[str], first_turn: int = 0) -> str:
    """Where two episodes' frames part, in words; empty if they do not. The first frame is that of ``first_turn``."""
    for turn, (one, other) in enumerate(zip(expected, got, strict=False), first_turn):
        if one != other:
            return f"{f'turn {turn}' if turn else 'reset'} gave {_around(one, other)} and then {_around(other, one)}"
    if len(expected) != len(got):
        return f"one lasted {len(expected) + first_turn - 1} turns and the other {len(got) + first_turn - 1}"
    return ""


def _around(text: str, other: str) -> str:
    same = next(
        (place for place, (one, two) in enumerate(zip(text, other, strict=False)) if one != two), min(len(text), len(other))
    )
    start = max(0, same - 20)
    return f"'{'…' if start else ''}{shown(text[start : same + 40], 61)}'"


def _frame(*values: object) -> str:
    text = " ".join(_canonical(value) for value in values)
    if len(text) <= 2000:
        return text
    return text[:1000] + hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _canonical(value: object, depth: int = 3) -> str:
    try:
        return encode_json(value).decode()
    except UnicodeEncodeError:
        return ascii(value)
    except (TypeError, ValueError, OverflowError, RecursionError):
        # A live object has no value to compare. That it is there at all is another check's business.
        if isinstance(value, dict) and depth:
            return "{" + ", ".join(f"{key}: {_canonical(item, depth - 1)}" for key, item in value.items()) + "}"
        return f"<{type(value).__qualname__}>"
