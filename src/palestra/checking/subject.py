"""The environment under test: where it comes from, which tasks it is given, who can play it, and what it declares."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from palestra import registry
from palestra.checking.episodes import Act, Episode, as_random, as_scripted, by_oracle, global_generators, play
from palestra.core import AsyncEnv, Env
from palestra.errors import Unsupported, UsageError
from palestra.references import reference_of
from palestra.registry import EnvSpec
from palestra.seeding import derive_seed
from palestra.trajectory import Task
from palestra.views import Guarded

__all__ = ["Subject", "Target", "closing_quietly", "find"]

Target = str | type[Env] | type[AsyncEnv]

GARBAGE = (
    "I do not know.",
    "\\boxed{}",
    "\\boxed{qwzxv}",
    "lorem ipsum dolor sit amet",
    "\\boxed{-999999999}",
    "<answer>???</answer>",
)
"""What a player says who has nothing to say. Each task gets one of them."""

LONGEST = 100
"""Turns after which an episode that declares no ``max_turns`` is given up."""
LONGEST_ORACLE = 1000
"""The same for the oracle, who is on its way somewhere."""


@dataclass(frozen=True)
class Subject:
    """What is tested, and on which tasks."""

    spec: EnvSpec
    tasks: tuple[Task, ...]
    seed: int

    def make(self) -> Guarded:
        """A fresh instance, as a user gets it."""
        return registry.make(self.spec.id)

    def with_tasks(self, count: int) -> "Subject":
        """The same on the first ``count`` tasks."""
        return replace(self, tasks=self.tasks[:count])

    def play(self, task: Task, actor: str, act: Act | None = None, *, env: Guarded | None = None, turns: int = 0) -> Episode:
        """Play ``task`` on ``env`` (a fresh instance, closed afterwards, if there is none), ``turns`` long if that is given.

        ``actor`` is one that ``self.actor`` knows, or a name for what ``act`` does.
        """
        act = act or self.actor(actor, task)
        with global_generators(0), ExitStack() as clean_up:

            def make() -> Guarded:
                return env or clean_up.enter_context(closing_quietly(self.make()))

            return play(make, task, act, lambda info: turns or self.turn_limit(info, actor), actor)

    def actor(self, name: str, task: Task) -> Act:
        """The players that need nothing but the environment, by name: another process can find them too."""
        match name:
            case "random":
                return as_random(derive_seed(self.seed, "check", task.seed))
            case "oracle":
                return by_oracle
            case "empty":
                return as_scripted(("",))
            case "garbage":
                return as_scripted((GARBAGE[task.seed % len(GARBAGE)],))
        raise UsageError(f"no player is called {name!r}")

    @cached_property
    def drivers(self) -> tuple[str, ...]:
        """Who can carry an episode forward."""
        offered = [*(["random"] if self.has_random else []), *(["oracle"] if self.has_oracle else [])]
        return tuple(offered) or ("garbage",)

    def turn_limit(self, info: Any, actor: str = "") -> int:
        """One turn more than declared, so that an episode that goes on too long can be seen to."""
        declared = self.declared_turns(info)
        return declared + 1 if declared is not None else LONGEST_ORACLE if actor == "oracle" else LONGEST

    def declared_turns(self, info: Any) -> int | None:
        """How long an episode may last by its own word: what ``reset`` said in ``info``, else what was registered."""
        said = info.get("max_turns") if isinstance(info, dict) else None
        return said if isinstance(said, int) else self.spec.max_turns

    # what it offers

    @cached_property
    def has_oracle(self) -> bool:
        """Whether there is an oracle."""
        return self._offers(lambda env: env.oracle())

    @cached_property
    def has_random(self) -> bool:
        """Whether there are random actions."""
        return self._offers(lambda env: env.sample_random_action())

    @cached_property
    def has_fork(self) -> bool:
        """Whether there is a fork."""
        return self._offers(lambda env: env.fork().close())

    def _offers(self, verb: Callable[[Guarded], object]) -> bool:
        try:
            with closing_quietly(self.make()) as env, global_generators(0):
                env.reset(task=self.tasks[0])
                verb(env)
        except Unsupported:
            return False
        except Exception:
            return True  # offered, and broken: the episodes will show it
        return True

    # what it declares

    @cached_property
    def author(self) -> Env | AsyncEnv:
        """An instance of the author's own class, reset once: traits may be set as late as that."""
        with closing_quietly(self.make()) as env, global_generators(0):
            env.reset(task=self.tasks[0])
            return env.unwrapped

    @cached_property
    def floor(self) -> float:
        """What it says a player scores who never looks."""
        return float(self.author.floor)

    @cached_property
    def ceiling(self) -> float | None:
        """What it says the best player scores; ``None`` if it says that every task can be solved."""
        said = self.author.ceiling
        return None if said is None else float(said)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """What it says a step is worth."""
        low, high = self.author.reward_range
        return float(low), float(high)


def find(target: Target, tasks: int, seed: int) -> Subject:
    """The subject that ``target`` names: a registered id, ``module:Class``, or a class."""
    if tasks < 1:
        raise UsageError(f"tasks={tasks}: a check needs at least one task")
    if isinstance(target, str):
        spec = registry.spec(target)
    elif issubclass(target, Env | AsyncEnv):
        spec = registry.spec(reference_of(target))
    else:
        raise UsageError(f"{target!r} cannot be checked: it is neither an Env nor an AsyncEnv")
    spec.factory()  # UnknownEnv, MissingExtra and ImportError are the caller's business, not findings
    return Subject(spec, tuple(Task(spec.id, seed + number) for number in range(tasks)), seed)


@contextmanager
def closing_quietly(env: Guarded) -> Iterator[Guarded]:
    """Close at the end, and leave it to the check that is about closing to say what is wrong with that."""
    try:
        yield env
    finally:
        with suppress(Exception):
            env.close()
