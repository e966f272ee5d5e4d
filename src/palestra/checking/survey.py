r"""The episodes the checks look at, each played once and kept.

Every task is played by the environment's own players (``random``, ``oracle``) and by players who never look: one who says
nothing, one who talks rubbish, and some who give another task's answer again and again. One task after the other is also
played with hostile text.
"""

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from time import perf_counter
from typing import NamedTuple

from palestra.checking.episodes import Episode, as_scripted
from palestra.checking.footprint import Footprint, footprint
from palestra.checking.hostile import GROWING, SHORT, SIZES
from palestra.checking.subject import Subject
from palestra.grading import last_boxed

__all__ = ["Constant", "Hostile", "Survey", "Trial", "answer_of", "try_out"]

CONSTANTS = 3
"""How many constant answers are tried."""

TOO_SLOW = 1.0
"""Seconds of computing a hostile text may cost, or three times the costliest ordinary step if that is more."""


class Trial(NamedTuple):
    """A few episodes played before all others, to see what one costs and what it leaves behind."""

    episodes: tuple[Episode, ...]
    left: Footprint
    """What is there after the last of them that was not there after the first."""

    seconds: float
    """What an episode takes, building and closing included."""


class Constant(NamedTuple):
    """An answer that solved some task, and how it fares on others."""

    action: str
    episodes: tuple[Episode, ...]


class Hostile(NamedTuple):
    """One hostile text and the episode it was thrown into."""

    name: str
    episode: Episode

    @property
    def seconds(self) -> float:
        """What it cost to answer it, in computing: that a machine is busy is not the environment's fault."""
        return sum(taken.cpu_seconds for taken in self.episode.steps)

    @property
    def encodable(self) -> bool:
        """Whether the text could be written to a file at all: a lone surrogate cannot, and an echo of it is no fault."""
        return "surrogate" not in self.name


class Survey:
    """All episodes of a check, played when first asked for."""

    def __init__(self, subject: Subject, trial: Trial) -> None:
        self.subject = subject
        self.trial = trial

    def by(self, actor: str) -> tuple[Episode, ...]:
        """Every task, played by ``actor``; nothing if the environment does not bring that player."""
        return self._players[actor]

    @cached_property
    def _players(self) -> dict[str, tuple[Episode, ...]]:
        subject = self.subject
        offered = {"random": subject.has_random, "oracle": subject.has_oracle, "empty": True, "garbage": True}
        return {
            actor: tuple(subject.play(task, actor) for task in subject.tasks) if there else ()
            for actor, there in offered.items()
        }

    @cached_property
    def driven(self) -> tuple[Episode, ...]:
        """One episode for each task, by the players that can carry it forward in turn: what must be the same elsewhere."""
        drivers = self.subject.drivers
        return tuple(self.by(drivers[place % len(drivers)])[place] for place in range(len(self.subject.tasks)))

    @cached_property
    def ordinary(self) -> tuple[Episode, ...]:
        """Every episode by a player who plays properly."""
        return tuple(chain.from_iterable(self.by(driver) for driver in self.subject.drivers))

    @cached_property
    def constants(self) -> tuple[Constant, ...]:
        """The most common answers to the first half of the tasks, each given to all tasks of the second half."""
        half = max(1, len(self.subject.tasks) // 2)
        common = Counter(episode.actions[-1] for episode in self._answering()[:half] if episode.actions)
        tasks = self.subject.tasks[half:] or self.subject.tasks
        return tuple(
            Constant(action, tuple(self.subject.play(task, "constant", as_scripted((action,))) for task in tasks))
            for action, _ in common.most_common(CONSTANTS)
        )

    def _answering(self) -> tuple[Episode, ...]:
        """Episodes that end in an answer worth trying elsewhere."""
        if oracle := self.by("oracle"):
            return oracle
        best = max((score for episode in self.by("random") if (score := episode.score) is not None), default=None)
        return tuple(episode for episode in self.by("random") if best is not None and episode.score == best)

    @cached_property
    def hostile(self) -> tuple[Hostile, ...]:
        """Every hostile text as the first action of some task; of those that grow, as many as stay quick."""
        return (*self._short(), *chain.from_iterable(map(self._growing, GROWING)))

    def _short(self) -> Iterator[Hostile]:
        for place, (name, text) in enumerate(SHORT.items()):
            yield self._throw(name, text, place)

    def _growing(self, name: str) -> Iterator[Hostile]:
        for place, size in enumerate(SIZES):
            thrown = self._throw(f"{name} ({size:,} characters)", GROWING[name](size), place)
            yield thrown
            if thrown.episode.error or thrown.seconds > self.patience:
                return

    def _throw(self, name: str, text: str, place: int) -> Hostile:
        task = self.subject.tasks[place % len(self.subject.tasks)]
        return Hostile(name, self.subject.play(task, f"hostile: {name}", as_scripted((text,)), turns=1))

    @cached_property
    def patience(self) -> float:
        """Seconds that one hostile text may cost."""
        slowest = max((taken.cpu_seconds for episode in self.ordinary for taken in episode.steps), default=0.0)
        return max(TOO_SLOW, 3 * slowest)

    @property
    def everything(self) -> Iterator[Episode]:
        """All of them."""
        yield from chain.from_iterable(self._players.values())
        yield from chain.from_iterable(constant.episodes for constant in self.constants)
        yield from (thrown.episode for thrown in self.hostile)

    @property
    def writable(self) -> Iterator[Episode]:
        """All of them but those in which the player said what cannot be written."""
        yield from chain.from_iterable(self._players.values())
        yield from chain.from_iterable(constant.episodes for constant in self.constants)
        yield from (thrown.episode for thrown in self.hostile if thrown.encodable)


def try_out(subject: Subject) -> Trial:
    """Play one task to warm up, and three more with an eye on what they leave behind."""
    driver = subject.drivers[0]
    episodes = [subject.play(subject.tasks[0], driver)]
    before = footprint()
    took = []
    for task in (subject.tasks * 3)[:3]:
        began = perf_counter()
        episodes.append(subject.play(task, driver))
        took.append(perf_counter() - began)
    return Trial(tuple(episodes), footprint(waiting_for=before).beyond(before), min(took))


def answer_of(action: str) -> str:
    r"""What an action says: the content of its last ``\boxed{…}``, or all of it."""
    boxed = last_boxed(action)
    return action.strip() if boxed is None else boxed
