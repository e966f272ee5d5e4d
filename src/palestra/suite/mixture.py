"""Mixtures of environments: an endless source of tasks that can be saved and resumed.

::

    tasks = mix({"game:Sudoku-v0-easy": 2, "rg:*": 1}, seed=0)
    async for trajectory in rollout(tasks, policy, n=512): ...
    saved = tasks.state                                             # into a checkpoint, as JSON
    tasks = mix({"game:Sudoku-v0-easy": 2, "rg:*": 1}, seed=0).resume(saved)

The k-th task depends on the seed and on k only, so the state is k. No two tasks of a mixture share a seed.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from itertools import accumulate
from math import fsum, isfinite
from typing import Any

from palestra.errors import SchemaError, UsageError
from palestra.foundation.seeding import derive, derive_seed
from palestra.registry import EnvSpec, is_pattern, list_envs, spec
from palestra.trajectory import Task

__all__ = ["Mixture", "mix"]


class Mixture(Iterator[Task]):
    """An iterator over tasks, drawn with given weights. ``rollout`` and ``collect`` take it in place of ids."""

    def __init__(self, weights: Mapping[str, float], *, seed: int = 0, n: int | None = None) -> None:
        self.weights = _per_id(weights)
        """The probability of each id; they sum to 1."""
        self.seed = seed
        self.n = n
        """The number of tasks; ``None`` if endless."""
        self.position = 0
        """The number of tasks drawn so far."""
        self._ids = list(self.weights)
        self._bounds = list(accumulate(self.weights.values()))

    def __next__(self) -> Task:
        if self.n is not None and self.position >= self.n:
            raise StopIteration
        task = self.task(self.position)
        self.position += 1
        return task

    def task(self, place: int) -> Task:
        """Return the task at ``place``. It does not depend on what was drawn before."""
        point = derive(self.seed, "mix", place).random() * self._bounds[-1]
        chosen = self._ids[min(bisect_right(self._bounds, point), len(self._ids) - 1)]
        return Task(chosen, derive_seed(self.seed, "mix task", place))

    @property
    def state(self) -> dict[str, Any]:
        """The state of the iterator, as plain JSON."""
        return {"position": self.position, "mixture": self._name()}

    def resume(self, state: Mapping[str, Any]) -> "Mixture":
        """Continue from ``state``.

        Raises:
            UsageError: The state was saved by a mixture with other ids, weights or seed.
        """
        position = state.get("position")
        if type(position) is not int or position < 0:
            raise SchemaError(f"{dict(state)!r} is not the state of a mixture")
        if state.get("mixture") != self._name():
            raise UsageError(
                "this state was saved by another mixture: the ids, the weights or the seed differ. Build the same mixture to "
                "resume, or start again without a state"
            )
        self.position = position
        return self

    def _name(self) -> str:
        parts = [part for id, weight in self.weights.items() for part in (id, weight.hex())]
        return f"{derive_seed(self.seed, *parts):x}"


def mix(weights: Mapping[str, float], *, seed: int = 0, n: int | None = None) -> Mixture:
    """Draw tasks from several environments, by weight.

    Args:
        weights: Id or pattern → weight. The ids that match a pattern share its weight evenly. A pattern matches the levels of a
            family, and not its plain id.
        seed: The seed of the draw. The same weights and seed draw the same tasks.
        n: The number of tasks; endless by default.

    Returns:
        An iterator over tasks that ``rollout``, ``collect`` and ``evaluate`` take in place of ids.

    Raises:
        UsageError: A weight is negative or not a number, or nothing matches a pattern.

    Example::

        tasks = palestra.mix({"game:Sudoku-v0-easy": 2, "rg:*": 1}, n=512)
    """
    return Mixture(weights, seed=seed, n=n)


def _per_id(weights: Mapping[str, float]) -> dict[str, float]:
    shares: dict[str, list[float]] = {}
    for name, weight in weights.items():
        if not (isfinite(weight) and weight >= 0):
            raise UsageError(f'the weight of "{name}" must be a number from 0 up, got {weight!r}')
        found = _matching(name)
        for id, known in found.items() if weight else ():
            if known.missing():
                known.factory()  # raises now, with what is missing, and not in the middle of a run
            shares.setdefault(id, []).append(weight / len(found))
    if not shares:
        raise UsageError("a mixture needs at least one id with a weight above 0")
    total = fsum(share for several in shares.values() for share in several)  # exact, so the order does not matter
    return {id: fsum(shares[id]) / total for id in sorted(shares)}


def _matching(name: str) -> dict[str, EnvSpec]:
    """Return the names for tasks and their specs. An address (``remote:URL#ID``) stays whole: its id alone is local."""
    if not is_pattern(name):
        return {name: spec(name)}
    found = list_envs(name)
    if not found:
        raise UsageError(f'no environment matches "{name}" (palestra list)')
    ids = {known.id for known in found}
    return {known.id: known for known in found if not _is_bare(known) or f"{known.id}-{known.level}" not in ids}


def _is_bare(known: EnvSpec) -> bool:
    return bool(known.level) and not known.id.endswith(f"-{known.level}")
