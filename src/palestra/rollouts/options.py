"""The settings of a rollout, and the two contracts that every scheduler of episodes keeps.

``rollout``, ``collect``, ``play`` and ``evaluate`` take these settings as keywords, except three of the trainer, which
continues one stream of episodes with many rollouts and may seat opponents. Everything below them passes one
``RolloutOptions``: the scheduler of this process, the dispatcher of a cluster, its workers, evaluation and training.
"""

import math
import operator
from collections.abc import AsyncGenerator, Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from palestra.core import Policy, Tool
from palestra.errors import UsageError
from palestra.foundation.encoding import encode_json, shown, tame
from palestra.registry import WrapperFactory
from palestra.rollouts.defaults import CONCURRENCY, DEADLINE, RETRIES
from palestra.rollouts.episode import EpisodeKey, Seating
from palestra.rollouts.supply import Envs
from palestra.trajectory import Trajectory
from palestra.wrappers import TurnLimit
from palestra.wrappers.lending import lend, named_wrapper

__all__ = [
    "AnyPolicy",
    "Book",
    "EpisodeLimit",
    "RolloutFunction",
    "RolloutOptions",
    "book_end",
    "check_seconds",
    "check_whole_number",
    "factory_name",
]

AnyPolicy = Policy | Callable[[str], Any] | str | Mapping[str, Policy | Callable[[str], Any] | str]
"""A policy, a function of text, ``"random"`` or ``"oracle"``; or one of these for each player."""


@dataclass(frozen=True, kw_only=True)
class RolloutOptions:
    """Which episodes a rollout consists of, and how they are played. Every setting is optional.

    The docstring of ``rollout`` describes each setting; only those of the trainer are described here.
    """

    n: int | None = None
    group_size: int = 1
    concurrency: int = CONCURRENCY
    seed: int = 0
    deadline: float = DEADLINE
    max_turns: int | None = None
    retries: int = RETRIES
    wrappers: Sequence[WrapperFactory | str] = ()
    tools: Sequence[Tool | str] = ()
    cut_as_invalid: bool = False
    skip: Container[tuple[int, int]] = ()
    """Looked up just before each episode starts."""
    first_group: int = 0
    """The number of the first group. A rollout that continues another one continues its numbers, and so its random choices."""
    shared_limit: "EpisodeLimit | None" = None
    """A limit that this rollout shares with other rollouts of this process, besides its own ``concurrency``."""
    seating: Seating | None = None
    """Chooses the policy of every player by the episode, instead of the rollout's ``policy``. Only in this process."""

    def __post_init__(self) -> None:
        for name in ("n", "max_turns"):
            if getattr(self, name) is not None:
                check_whole_number(name, getattr(self, name), at_least=1)
        for name, least in (("group_size", 1), ("concurrency", 1), ("seed", None), ("retries", 0), ("first_group", 0)):
            check_whole_number(name, getattr(self, name), at_least=least)
        check_seconds("deadline", self.deadline)

    def around(self) -> tuple[WrapperFactory, ...]:
        """The wrappers of every environment, innermost first: ``wrappers``, the one that lends ``tools``, the turn limit.

        Raises ``UsageError`` for a name that means no wrapper or tool.
        """
        named = tuple(named_wrapper(wrapper) if isinstance(wrapper, str) else wrapper for wrapper in self.wrappers)
        lent = (lend(self.tools),) if self.tools else ()
        limit = () if self.max_turns is None else (partial(TurnLimit, turns=self.max_turns),)
        return (*named, *lent, *limit)

    def names_around(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of ``wrappers`` and of ``tools``, for the ``config.json`` of a run."""
        tools = [tool if isinstance(tool, str) else f"{factory_name(type(tool))}({tool.name})" for tool in self.tools]
        return tuple(map(factory_name, self.wrappers)), tuple(tools)


def check_whole_number(name: str, value: object, *, at_least: int | None = None) -> None:
    """Raise ``UsageError`` unless the option ``name`` is a whole number, of Python or of NumPy, that is not too small."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UsageError(f"{name} must be a whole number, got {shown(value)} ({type(value).__name__})") from None
    if at_least is not None and number < at_least:
        raise UsageError(f"{name} must be at least {at_least}, got {shown(value)}")


def check_seconds(name: str, value: object) -> None:
    """Raise ``UsageError`` unless the option ``name`` is a time in seconds: a finite number that is more than 0."""
    try:
        if isinstance(value, bool | str | bytes):
            raise TypeError
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be a number of seconds, got {shown(value)} ({type(value).__name__})") from None
    except OverflowError:
        seconds = math.inf
    if not 0 < seconds < math.inf:  # also refuses NaN
        raise UsageError(f"{name} must be more than 0 seconds and finite, got {shown(value)}")


class EpisodeLimit:
    """How many episodes several rollouts may play at the same time, together."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: dict[Callable[[], None], None] = {}

    def take(self, wake: Callable[[], None]) -> bool:
        """Take a place. If there is none, ``wake`` is called when one is free."""
        if not self._free:
            self._waiting[wake] = None
            return False
        self._free -= 1
        return True

    def give_back(self) -> None:
        """Give a place back, to the rollout that has waited longest."""
        self._free += 1
        while self._free and self._waiting:
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()


def factory_name(factory: Any) -> str:
    """A name of a class, function or ``partial`` that is the same in every process. A name is its own name."""
    if isinstance(factory, str):
        return factory
    function = getattr(factory, "func", factory)
    settings = getattr(factory, "keywords", {})
    name = f"{function.__module__}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    return f"{name}({encode_json(tame(settings)).decode()})" if settings else name


class Book(Protocol):
    """Records which worker plays which episode, under the name ``GROUP.MEMBER``; for example a ``durable.ledger.Ledger``."""

    def issue(self, rollout: str, task: str = "") -> None: ...
    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None: ...
    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False) -> None: ...
    def finish(self, rollout: str) -> None: ...


def book_end(book: Book | None, key: EpisodeKey, trajectories: Sequence[Trajectory]) -> None:
    """Enter the end of the episode ``key`` into ``book``."""
    if book is None:
        return
    first = trajectories[0]
    if first.stop.failed:
        book.fail(key.name, first.failures[-1].kind, first.attempt)
    else:
        book.finish(key.name)


class RolloutFunction(Protocol):
    """Plays episodes and yields each trajectory as its episode ends.

    ``play_episodes`` plays them in this process, ``Dispatcher.rollout`` on the workers of a cluster.
    """

    def __call__(
        self, envs: Envs, policy: AnyPolicy, options: RolloutOptions, *, book: Book | None = None
    ) -> AsyncGenerator[Trajectory, None]: ...
