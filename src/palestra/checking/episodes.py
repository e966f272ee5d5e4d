"""Plays an episode and records everything about it, whatever the environment does wrong.

This module does not judge: a ``PlayedEpisode`` records an exception, a malformed step or a missing end, and the checks read it.
Every episode starts from the same state of the global generators. An environment that uses them therefore fails the one check
that is about them, and does not look random to the others.
"""

import hashlib
import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy import random as numpy_random

from palestra.checking.report import shown
from palestra.checking.shelter import keep_interrupt
from palestra.core import Env, Step
from palestra.foundation.encoding import encode_json
from palestra.foundation.encoding import shown as safely_shown
from palestra.rollouts.validation import check_bounds
from palestra.trajectory import Task, message_of

__all__ = [
    "Act",
    "PlayedEpisode",
    "PlayedStep",
    "as_random",
    "as_scripted",
    "by_oracle",
    "difference",
    "generator_states",
    "global_generators",
    "play",
    "playing",
    "told",
]

Act = Callable[[Env, int], str]
"""A player: a function of the environment and the turn (from 0) that returns the action."""


@dataclass(frozen=True)
class PlayedStep:
    """One action and the step that it led to."""

    action: str
    step: Step
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    """CPU time, which unlike ``seconds`` does not grow on a busy machine."""

    @property
    def frame(self) -> str:
        """The step as a line that can be compared."""
        return _frame(self.action, *self.step)


@dataclass(frozen=True)
class PlayedEpisode:
    """The record of one episode."""

    task: Task
    actor: str
    observation: Any
    info: Any
    steps: tuple[PlayedStep, ...]
    reset_seconds: float
    error: str = ""
    """Where the environment raised an exception, and which; empty if it did not."""

    @property
    def ended(self) -> bool:
        """Whether the last step is terminated or truncated."""
        return bool(self.steps) and bool(self.steps[-1].step.terminated or self.steps[-1].step.truncated)

    @property
    def actions(self) -> tuple[str, ...]:
        """The actions, in order."""
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
        """Time spent in the environment."""
        return self.reset_seconds + sum(taken.seconds for taken in self.steps)

    @cached_property
    def frames(self) -> tuple[str, ...]:
        """The episode as lines that can be compared: the reset, each step, and the error if there is one."""
        steps = (taken.frame for taken in self.steps)
        return (_frame(self.observation, self.info), *steps, *([self.error] if self.error else []))


def play(make: Callable[[], Env], task: Task, act: Act, limit: Callable[[Any], int], actor: str = "") -> PlayedEpisode:
    """Play ``task`` on what ``make`` returns until it ends, raises, or takes ``limit(info of reset)`` turns."""
    running = playing(make, task, act, limit, actor)
    while True:
        try:
            next(running)
        except StopIteration as ended:
            episode: PlayedEpisode = ended.value
            return episode


def playing(
    make: Callable[[], Env], task: Task, act: Act, limit: Callable[[Any], int], actor: str = ""
) -> Generator[None, None, PlayedEpisode]:
    """Play like ``play``, as a generator that pauses after the reset and every step, so that episodes can alternate."""
    steps: list[PlayedStep] = []
    observation: Any = None
    info: Any = None
    reset_seconds, error, where = 0.0, "", "building"
    try:
        env = make()
        where = "reset"
        began = perf_counter()
        observation, info = env.reset(task=task)
        reset_seconds = perf_counter() - began
        check_bounds(info)  # no check could read a larger one to its end
        yield
        for turn in range(limit(info)):
            where = f"turn {turn + 1}"
            action = act(env, turn)
            if not isinstance(action, str):
                raise TypeError(f"{actor} gave a {type(action).__name__} as its action, expected text")
            began, cpu_began = perf_counter(), process_time()
            step = Step(*env.step(action))
            seconds, cpu_seconds = perf_counter() - began, process_time() - cpu_began
            check_bounds(step.info)
            steps.append(PlayedStep(action, step, seconds, cpu_seconds))
            if step.terminated or step.truncated:
                break
            yield
    except BaseException as raised:  # noqa: BLE001 - whatever the author's code raises is a finding
        keep_interrupt()
        error = f"{where}: {told(raised)}"
    return PlayedEpisode(task, actor, observation, info, tuple(steps), reset_seconds, error)


def told(error: BaseException) -> str:
    """Return an exception as one printable line, whatever its methods do."""
    return f"{type(error).__name__}: {shown(message_of(error), 200)}"


# -------------------------------------------------------------------------------------------------------------- players


def as_random(seed: int) -> Act:
    """Return a player that takes the environment's own random actions, from ``seed``."""

    def act(env: Env, turn: int) -> str:
        if turn == 0:
            env.seed_actions(seed)
        return env.sample_random_action()

    return act


def by_oracle(env: Env, turn: int) -> str:
    """Return the action of the environment's oracle."""
    return env.oracle()


def as_scripted(actions: Sequence[str], *, draw: bool = False) -> Act:
    """Return a player that takes ``actions`` in order and repeats the last one. With ``draw`` it samples unused ones too."""

    def act(env: Env, turn: int) -> str:
        if draw:
            env.sample_random_action()
        return actions[min(turn, len(actions) - 1)]

    return act


# ----------------------------------------------------------------------------------------------------------- comparison


@contextmanager
def global_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of ``random`` and NumPy for the block, and restore them after it."""
    before = random.getstate(), numpy_random.get_state()
    random.seed(seed)
    numpy_random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before[0])
        numpy_random.set_state(before[1])


def generator_states() -> dict[str, object]:
    """Return the states of the global generators, by the name of their module."""
    legacy = numpy_random.get_state(legacy=True)
    return {
        "random": random.getstate(),
        "numpy.random": tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in legacy),
    }


def difference(expected: Sequence[str], got: Sequence[str], first_turn: int = 0) -> str:
    """Describe the first difference of two episodes; empty if there is none. The first frame is that of ``first_turn``."""
    for turn, (ours, theirs) in enumerate(zip(expected, got, strict=False), first_turn):
        if ours != theirs:
            return f"{f'turn {turn}' if turn else 'reset'} gave {_around(ours, theirs)} and then {_around(theirs, ours)}"
    if len(expected) != len(got):
        return f"one lasted {len(expected) + first_turn - 1} turns and the other {len(got) + first_turn - 1}"
    return ""


def _around(text: str, other: str) -> str:
    same = next(
        (position for position, (ours, theirs) in enumerate(zip(text, other, strict=False)) if ours != theirs),
        min(len(text), len(other)),
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
    except BaseException:  # noqa: BLE001 - a stranger's object may raise anything
        keep_interrupt()
        # An object that JSON cannot represent has no value to compare. The check "info" reports it.
        if isinstance(value, dict) and depth:
            parts = (f"{safely_shown(key)}: {_canonical(item, depth - 1)}" for key, item in dict.items(value))
            return "{" + ", ".join(parts) + "}"
        return f"<{type(value).__qualname__}>"
