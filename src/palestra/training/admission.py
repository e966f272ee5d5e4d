"""Which groups are started, and which of them a step takes. Pure bookkeeping: no clock, no episodes, no files.

Groups are numbered in the order in which they start. When the weights have version v, groups may be started for the steps up to
v + ``ahead``: at most (``ahead`` + 1) · ``tasks`` groups are then started and not taken. A step takes ``tasks`` groups that
have finished, the lowest numbers first. It does not wait for slow groups, with two exceptions:

- **Age.** A group that started at version v is taken by step v + ``oldest`` at the latest, so no token that a step learns from
  is older than ``oldest`` versions. A step that would leave too many old groups behind waits for them. Nothing is dropped, so
  in the long run slow groups are taken as often as they are started.
- **Start.** The first ``ahead`` + 1 steps take the groups in order: a run does not begin with the shortest episodes.

With ``oldest = ahead``, every step has to take its groups in order. With both 0, training is synchronous.
"""

from collections.abc import Iterable

__all__ = ["Admission"]


class Admission:
    """The groups of a run that were started and not taken yet."""

    def __init__(self, tasks: int, ahead: int, oldest: int, steps: int) -> None:
        assert 0 <= ahead <= oldest, "a group that is started too early cannot be taken in time"
        self._tasks = tasks
        self._ahead = ahead
        self._oldest = oldest
        self._steps = steps
        self.started = 0
        """How many groups were started. Their numbers are 0, 1, 2, …"""
        self.replaced = 0
        """How many groups were given up. Each makes room for another."""
        self.open: dict[int, int] = {}
        """The groups that were started and not taken: number → version of the weights at their start."""
        self.finished: set[int] = set()
        """Those of them that have finished."""

    @property
    def running(self) -> set[int]:
        """The groups that have not finished."""
        return self.open.keys() - self.finished

    def admit(self, version: int) -> range:
        """Return the numbers of the groups that start now, with weights of ``version``."""
        limit = min(version + self._ahead + 1, self._steps) * self._tasks + self.replaced
        numbers = range(self.started, max(limit, self.started))
        self.start(numbers, version)
        return numbers

    def start(self, numbers: Iterable[int], version: int) -> None:
        """Enter groups that start at ``version``, or that start again after a resume."""
        for number in numbers:
            self.open[number] = version
            self.started = max(self.started, number + 1)

    def finish(self, number: int) -> None:
        """Enter that all episodes of a group have ended."""
        assert number in self.running
        self.finished.add(number)

    def replace(self, number: int) -> None:
        """Give up a running group; ``admit`` returns another in its place."""
        del self.open[number]
        self.replaced += 1

    def take(self, step: int) -> list[int] | None:
        """Return the groups that ``step`` learns from, in the order of their numbers; ``None`` if it has to wait."""
        ready = sorted(self.finished)[: self._tasks]
        in_order = step > self._ahead or ready == sorted(self.open)[: self._tasks]
        if len(ready) < self._tasks or not in_order or self._late(step, ready):
            return None
        for number in ready:
            del self.open[number]
        self.finished -= set(ready)
        return ready

    def _late(self, step: int, ready: Iterable[int]) -> bool:
        """Whether a group is too old in a later step if this one takes ``ready``, although the oldest go first from now on."""
        taken = set(ready)
        left = sorted(version for number, version in self.open.items() if number not in taken)
        return any(step + 1 + position // self._tasks > version + self._oldest for position, version in enumerate(left))
