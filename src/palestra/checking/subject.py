"""The environment under test: its origin, tasks, players and declarations."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

from palestra import registry
from palestra.adapters import Guarded
from palestra.checking.episodes import Act, PlayedEpisode, as_random, as_scripted, by_oracle, global_generators, play, told
from palestra.checking.shelter import Shelter, keep_interrupt
from palestra.core import AsyncEnv, Env
from palestra.errors import MissingData, MissingExtra, NotBegun, Unsupported, UsageError
from palestra.foundation.references import reference_of
from palestra.foundation.seeding import derive_seed
from palestra.registry import EnvSpec
from palestra.rollouts.supply import row_at, row_count
from palestra.trajectory import Task

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
"""Actions of the player that sends garbage, one per task."""

LONGEST = 100
"""Turns after which an episode without a declared ``max_turns`` is abandoned."""
LONGEST_ORACLE = 1000
"""The same for the oracle, which may need many turns to solve a task."""


CALL_SECONDS = 60.0
"""Seconds that one call may take, at least."""


@dataclass(frozen=True)
class Introduction:
    """What an instance shows of itself after the reset of the first task."""

    author: Env | AsyncEnv | None = None
    """An instance of the author's class, whose reset may set its traits; ``None`` if it could not be made."""
    begins: bool = True
    """Whether ``reset`` passed its task to the base class; also true if it raised."""
    offers: frozenset[str] = frozenset()
    """The optional verbs that it has."""
    error: str = ""
    """What it raised before it could show more."""


@dataclass(frozen=True)
class Subject:
    """The environment under test, and its tasks."""

    spec: EnvSpec
    tasks: tuple[Task, ...]
    seed: int
    shelter: Shelter = field(compare=False)

    def make(self) -> Guarded:
        """Return a fresh instance, made as users make it."""
        return self.shelter.around(self.shelter.call("__init__", registry.make, self.spec.id))

    @contextmanager
    def held_open(self) -> Iterator[None]:
        """Keep one episode of a reusable environment open.

        What its instances share, such as a browser or a Java process, is then started once, and not for every episode.
        """
        with ExitStack() as clean_up:
            if getattr(self.spec.factory(), "reusable", False):
                try:
                    with global_generators(0):
                        clean_up.enter_context(closing_quietly(self.make())).reset(task=self.tasks[0])
                except BaseException:  # noqa: BLE001 - the checks report what fails here
                    keep_interrupt()
            yield

    def with_tasks(self, count: int) -> "Subject":
        """Return the same subject with the first ``count`` tasks."""
        fewer = replace(self, tasks=self.tasks[:count])
        fewer.__dict__["introduction"] = self.introduction  # of the first task, so it need not be started again
        return fewer

    def play(
        self,
        task: Task,
        actor: str,
        act: Act | None = None,
        *,
        env: Guarded | None = None,
        turns: int = 0,
        keep: list[Guarded] | None = None,
    ) -> PlayedEpisode:
        """Play ``task`` on ``env``, or on a fresh instance that is closed afterwards, for at most ``turns`` turns if given.

        ``actor`` is a name that ``self.actor`` knows, or a label for ``act``. The fresh instance is appended to ``keep``.
        """
        act = act or self.actor(actor, task)
        with global_generators(0), ExitStack() as clean_up:

            def make() -> Guarded:
                if env is not None:
                    return env
                fresh = clean_up.enter_context(closing_quietly(self.make()))
                if keep is not None:
                    keep.append(fresh)
                return fresh

            return play(make, task, act, lambda info: turns or self.turn_limit(info, actor), actor)

    def actor(self, name: str, task: Task) -> Act:
        """Return a player by name. Another process can find these players too, because they need only the environment."""
        match name:
            case "random":
                return as_random(derive_seed(self.seed, "check", task.seed))
            case "oracle":
                return by_oracle
            case "empty":
                return as_scripted(("",))
            case "garbage":
                return as_scripted((GARBAGE[task.seed % len(GARBAGE)],))
        raise UsageError(f"there is no player {name!r}")

    @cached_property
    def drivers(self) -> tuple[str, ...]:
        """The ordinary players: random and oracle as far as the environment has them, otherwise garbage."""
        offered = [*(["random"] if self.has_random else []), *(["oracle"] if self.has_oracle else [])]
        return tuple(offered) or ("garbage",)

    def turn_limit(self, info: Any, actor: str = "") -> int:
        """Return one turn more than declared, so that an episode that does not end in time is noticed."""
        declared = self.declared_turns(info)
        return declared + 1 if declared is not None else LONGEST_ORACLE if actor == "oracle" else LONGEST

    def declared_turns(self, info: Any) -> int | None:
        """Return the smallest declared limit: in ``info`` of the reset, in ``register``, or on the class."""
        announced = info.get("max_turns") if isinstance(info, dict) else None
        on_class = getattr(self.spec.factory(), "max_turns", None)
        if self.spec.wrappers:  # the environment counts its own steps, not the turns of the agent
            return self.spec.max_turns
        return min((turns for turns in (announced, self.spec.max_turns, on_class) if type(turns) is int), default=None)

    # what it offers

    @property
    def has_oracle(self) -> bool:
        """Whether the environment has an oracle."""
        return "oracle" in self.introduction.offers

    @property
    def has_random(self) -> bool:
        """Whether the environment has random actions."""
        return "sample_random_action" in self.introduction.offers

    @property
    def has_fork(self) -> bool:
        """Whether the environment can be forked."""
        return "fork" in self.introduction.offers

    @cached_property
    def introduction(self) -> Introduction:
        """What an instance shows of itself; it is started once per check."""
        try:
            with closing_quietly(self.make()) as env, global_generators(0):
                try:
                    env.reset(task=self.tasks[0])
                except (NotBegun, AttributeError) as error:
                    if isinstance(error, AttributeError) and error.name != "task":
                        raise
                    return Introduction(begins=False)
                author = env.unwrapped
                begins = getattr(author, "task", None) == self.tasks[0]
                return Introduction(author, begins, frozenset(filter(partial(_offers, env), _OPTIONAL)))
        except (MissingExtra, MissingData):
            raise  # of this machine, and not a fault of the environment
        except BaseException as error:  # noqa: BLE001 - an author's code may raise anything
            keep_interrupt()
            return Introduction(error=told(error))

    # what it declares

    @property
    def author(self) -> Env | AsyncEnv:
        """An instance of the author's class after a reset, which may set its traits."""
        assert self.introduction.author is not None, self.introduction.error  # a check does not run after a failed start
        return self.introduction.author

    @cached_property
    def floor(self) -> float:
        """The declared mean score of a player that ignores the task."""
        return float(self.author.floor)

    @cached_property
    def ceiling(self) -> float | None:
        """The declared mean score of the best player; ``None`` if every task can be solved."""
        declared = self.author.ceiling
        return None if declared is None else float(declared)

    @cached_property
    def reward_range(self) -> tuple[float, float]:
        """The declared range of the reward of a step."""
        low, high = self.author.reward_range
        return float(low), float(high)

    @cached_property
    def score_range(self) -> tuple[float, float]:
        """The declared range of the sum of an episode's rewards."""
        low, high = self.author.score_range
        return float(low), float(high)


_OPTIONAL = ("oracle", "sample_random_action", "fork")


def _offers(env: Guarded, verb: str) -> bool:
    """Whether the class of ``env`` has ``verb``. One that fails exists: the episodes show how."""
    try:
        result = getattr(env, verb)()
        if verb == "fork":
            with closing_quietly(result):
                pass
    except Unsupported:
        return False
    except BaseException:  # noqa: BLE001 - an author's code may raise anything
        keep_interrupt()
    return True


def find(target: Target, tasks: int, seed: int, seconds: float = CALL_SECONDS) -> Subject:
    """Return the subject for ``target``: a registered id, ``module:Class``, or a class.

    A call may take ``seconds``, or ``CALL_SECONDS`` if that is longer.
    """
    if tasks < 1:
        raise UsageError(f"n={tasks}: a check needs at least one task")
    if isinstance(target, str):
        spec = registry.spec(target)
        if spec.id != target:  # the address of a server; under its id alone, this process would play an environment of its own
            raise UsageError(f'"{target}" is played on a server. Check it there: palestra check {spec.id}')
    elif issubclass(target, Env | AsyncEnv):
        spec = registry.spec(reference_of(target))
    else:
        raise UsageError(f"{target!r} cannot be checked: it is neither an Env nor an AsyncEnv")
    factory = spec.factory()  # raises UnknownEnv, MissingExtra or ImportError: mistakes of the caller, not findings
    shelter = Shelter(spec.id, max(seconds, CALL_SECONDS), blocking=getattr(factory, "blocking", False) is True)
    return Subject(spec, _tasks(spec, tasks, seed), seed, shelter)


def _tasks(spec: EnvSpec, count: int, seed: int) -> tuple[Task, ...]:
    """``count`` tasks, or one per row of an environment that has fewer rows."""
    rows = row_count(spec)
    if rows is None:
        return tuple(Task(spec.id, seed + number) for number in range(count))
    return tuple(
        Task(spec.id, seed + number, index=row_at(range(rows), seed, spec.id, number)) for number in range(min(count, rows))
    )


@contextmanager
def closing_quietly(env: Guarded) -> Iterator[Guarded]:
    """Close ``env`` at the end and ignore errors: the check ``close`` reports them."""
    try:
        yield env
    finally:
        try:
            env.close()
        except BaseException:  # noqa: BLE001 - an author's code may raise anything
            keep_interrupt()
