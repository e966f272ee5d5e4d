"""The episodes that the checks read, each played once and kept.

Every task is played by the environment's own players (``random``, ``oracle``) and by players that ignore the observation: one
sends empty actions, one sends garbage, and some repeat the answer to another task. Hostile texts are sent to one task after the
other.
"""

import gc
import warnings
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from time import perf_counter
from typing import NamedTuple

from palestra.adapters import Guarded
from palestra.checking.episodes import PlayedEpisode, as_scripted
from palestra.checking.footprint import Footprint, footprint
from palestra.checking.hostile import GROWING, SHORT, SIZES
from palestra.checking.subject import Subject
from palestra.grading import last_boxed

__all__ = ["Constant", "Hostile", "Survey", "Trial", "answer_of", "try_out"]

CONSTANTS = 3
"""Number of constant answers to try."""

TOO_SLOW = 1.0
"""CPU seconds that a hostile text may take, or three times the slowest ordinary step if that is more."""

TIMINGS = 3
"""How often a slow step is timed. The fastest counts."""


class Trial(NamedTuple):
    """A few episodes played first, to measure how long one takes and which resources it leaks."""

    episodes: tuple[PlayedEpisode, ...]
    left: Footprint
    """Resources that exist after the last episode and did not exist after the first, while the closed instances still exist."""
    dropped: tuple[str, ...]
    """Python's warnings about files and sockets that were garbage-collected without being closed."""

    seconds: float
    """Duration of an episode, including building and closing the environment."""


class Constant(NamedTuple):
    """A common answer of the first half of the tasks, and the episodes in which it was given to the second half."""

    action: str
    episodes: tuple[PlayedEpisode, ...]


class Hostile(NamedTuple):
    """One hostile text and the episode in which it was sent."""

    name: str
    episode: PlayedEpisode

    @property
    def seconds(self) -> float:
        """CPU time of the steps: unlike elapsed time, it does not grow on a busy machine."""
        return sum(taken.cpu_seconds for taken in self.episode.steps)

    @property
    def encodable(self) -> bool:
        """Whether a file can hold the text. A lone surrogate cannot be written, so an environment may echo it."""
        return "surrogate" not in self.name


class Survey:
    """All episodes of a check, played when a check first needs them."""

    def __init__(self, subject: Subject, trial: Trial) -> None:
        self.subject = subject
        self.trial = trial

    def by(self, actor: str) -> tuple[PlayedEpisode, ...]:
        """Return every task as played by ``actor``; empty if the environment does not have that player."""
        return self._players[actor]

    @cached_property
    def _players(self) -> dict[str, tuple[PlayedEpisode, ...]]:
        subject = self.subject
        offered = {"random": subject.has_random, "oracle": subject.has_oracle, "empty": True, "garbage": True}
        return {
            actor: tuple(subject.play(task, actor) for task in subject.tasks) if there else ()
            for actor, there in offered.items()
        }

    @cached_property
    def driven(self) -> tuple[PlayedEpisode, ...]:
        """One episode per task, by the ordinary players in turn. Other processes must reproduce these episodes."""
        drivers = self.subject.drivers
        return tuple(self.by(drivers[index % len(drivers)])[index] for index in range(len(self.subject.tasks)))

    @cached_property
    def ordinary(self) -> tuple[PlayedEpisode, ...]:
        """Every episode of an ordinary player (``Subject.drivers``)."""
        return tuple(chain.from_iterable(self.by(driver) for driver in self.subject.drivers))

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The most common answers to the first half of the tasks, each given to every task of the second half."""
        half = max(1, len(self.subject.tasks) // 2)
        common = Counter(episode.actions[-1] for episode in self._answering()[:half] if episode.actions)
        tasks = self.subject.tasks[half:] or self.subject.tasks
        return tuple(
            Constant(action, tuple(self.subject.play(task, "constant", as_scripted((action,))) for task in tasks))
            for action, _ in common.most_common(CONSTANTS)
        )

    def _answering(self) -> tuple[PlayedEpisode, ...]:
        """Return episodes whose last action is worth trying on other tasks."""
        if oracle := self.by("oracle"):
            return oracle
        best = max((score for episode in self.by("random") if (score := episode.score) is not None), default=None)
        return tuple(episode for episode in self.by("random") if best is not None and episode.score == best)

    @cached_property
    def hostile(self) -> tuple[Hostile, ...]:
        """Every hostile text as the first action of a task; texts of growing size up to the first that is too slow."""
        return (*self._short(), *chain.from_iterable(map(self._growing, GROWING)))

    def _short(self) -> Iterator[Hostile]:
        for number, (name, text) in enumerate(SHORT.items()):
            yield self._throw(name, text, number)

    def _growing(self, name: str) -> Iterator[Hostile]:
        for number, size in enumerate(SIZES):
            thrown = self._throw(f"{name} ({size:,} characters)", GROWING[name](size), number)
            yield thrown
            if thrown.episode.error or thrown.seconds > self.patience:
                return

    def _throw(self, name: str, text: str, number: int) -> Hostile:
        """Send ``text`` as the first action. A slow step is timed again, because another thread may have used the CPU."""
        task = self.subject.tasks[number % len(self.subject.tasks)]
        thrown: list[Hostile] = []
        while len(thrown) < TIMINGS and all(
            not attempt.episode.error and attempt.seconds > self.patience for attempt in thrown
        ):
            thrown.append(Hostile(name, self.subject.play(task, f"hostile: {name}", as_scripted((text,)), turns=1)))
        return min(thrown, key=lambda attempt: (not attempt.episode.error, attempt.seconds))

    @cached_property
    def patience(self) -> float:
        """CPU seconds that one hostile text may take."""
        slowest = max((taken.cpu_seconds for episode in self.ordinary for taken in episode.steps), default=0.0)
        return max(TOO_SLOW, 3 * slowest)

    @property
    def everything(self) -> Iterator[PlayedEpisode]:
        """All episodes."""
        yield from chain.from_iterable(self._players.values())
        yield from chain.from_iterable(constant.episodes for constant in self.constants)
        yield from (thrown.episode for thrown in self.hostile)

    @property
    def writable(self) -> Iterator[PlayedEpisode]:
        """All episodes except those whose actions a file cannot hold."""
        yield from chain.from_iterable(self._players.values())
        yield from chain.from_iterable(constant.episodes for constant in self.constants)
        yield from (thrown.episode for thrown in self.hostile if thrown.encodable)


def try_out(subject: Subject) -> Trial:
    """Play one task to warm up, and three more to measure their duration and the resources that they leak."""
    driver = subject.drivers[0]
    episodes = [subject.play(subject.tasks[0], driver)]
    before = footprint()
    took: list[float] = []
    closed: list[Guarded] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        for task in (subject.tasks * 3)[:3]:
            began = perf_counter()
            episodes.append(subject.play(task, driver, keep=closed))
            took.append(perf_counter() - began)
        left = footprint(waiting_for=before).beyond(before)
        closed.clear()
        gc.collect()
    dropped = tuple(str(warning.message) for warning in caught if issubclass(warning.category, ResourceWarning))
    return Trial(tuple(episodes), left, dropped, min(took))


def answer_of(action: str) -> str:
    r"""Return the answer in an action: the content of its last ``\boxed{…}``, or all of it."""
    boxed = last_boxed(action)
    return action.strip() if boxed is None else boxed
