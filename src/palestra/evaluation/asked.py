"""What an evaluation was asked for: the episodes, whether they were played or not, and what each of them could score.

A mean is of what was asked for. Episodes that have no score may differ from those that have one: a budget cuts the long ones, a
deadline the slow ones. So a report compares the episodes that it has with the episodes that were asked for, one by one.
``docs/design/statistics.md`` has the rule.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from palestra.errors import PalestraError, SchemaError
from palestra.registry import EnvSpec, WrapperFactory
from palestra.trajectory import Task

__all__ = ["Asked", "Bounds", "score_ranges", "task_name"]

Bounds = tuple[float, float]

MOST_EPISODES = 10_000_000
"""Episodes that the settings in a folder may ask for: the folder may come from another person."""

_encoder = msgspec.msgpack.Encoder(enc_hook=str, order="deterministic")
_named = msgspec.msgpack.Decoder(tuple[Task, str])


def task_name(task: Task, player: str) -> bytes:
    """The name of the sample that ``player`` plays in ``task``: two players of one game are two samples."""
    return _encoder.encode((task, player))


@dataclass(frozen=True)
class Asked:
    """The episodes that were asked for."""

    tasks: Sequence[Task]
    """The task of each group, in the order of the groups."""
    group_size: int = 1
    """Episodes per task."""
    ranges: Mapping[str, Bounds] = field(default_factory=dict)
    """Environment → bounds of an episode's score, if they are known."""

    @classmethod
    def recorded(
        cls, counts: Mapping[str, int], group_size: int, ranges: Mapping[str, Bounds], names: Mapping[int, bytes]
    ) -> "Asked":
        """What the folder of an evaluation says: ``counts`` is the number of tasks per environment.

        ``names`` has the names of the groups that were played. A group that was not played gets a task of its own, which
        stands for one that nobody knows.

        Raises:
            SchemaError: The numbers contradict each other.
        """
        total = sum(counts.values())
        sound = min(counts.values(), default=0) >= 0 and group_size >= 1 and total * group_size <= MOST_EPISODES
        if not sound or any(low > high for low, high in ranges.values()):
            raise SchemaError(
                "the settings of the run are damaged: they ask for no possible number of episodes or range of scores"
            )
        tasks = {group: _named.decode(name)[0] for group, name in names.items()}
        left = Counter(counts)
        left.subtract(task.env for task in tasks.values())
        if min(left.values(), default=0) < 0 or not all(0 <= group < total for group in tasks):
            raise SchemaError("the run has episodes that it was not asked for: its settings and its trajectories differ")
        unknown = iter([env for env in sorted(left) for _ in range(left[env])])
        return cls(
            [tasks.get(group) or Task(next(unknown), 0, params={"unplayed": group}) for group in range(total)],
            group_size,
            ranges,
        )

    @property
    def counts(self) -> dict[str, int]:
        """Environment → number of episodes."""
        return {env: count * self.group_size for env, count in Counter(task.env for task in self.tasks).items()}

    def names(self, players: Mapping[str, Iterable[str]]) -> dict[str, list[bytes]]:
        """Environment → the name of each sample that was asked for; ``players`` has the players of each environment."""
        samples: dict[str, list[bytes]] = defaultdict(list)
        for task in self.tasks:
            for player in players.get(task.env) or ("",):
                samples[task.env] += [task_name(task, player)] * self.group_size
        return samples


def score_ranges(
    specs: Iterable[EnvSpec], max_turns: int | None = None, wrappers: Sequence[WrapperFactory | str] = ()
) -> dict[str, Bounds]:
    """Environment → bounds of an episode's score, for the environments of ``specs`` whose bounds are known.

    They are the class's ``score_range``, or else its ``reward_range`` times its turn limit. Nothing is known of an environment
    on a server, or with a wrapper that is not built in, its own ones included, which may change rewards.
    """
    if not all(_keeps_rewards(wrapper) for wrapper in wrappers):
        return {}
    ranges = {}
    for spec in specs:
        if all(map(_keeps_rewards, spec.wrappers)) and (bounds := _range_of(spec, max_turns)) is not None:
            ranges[spec.id] = bounds
    return ranges


def _keeps_rewards(wrapper: WrapperFactory | str) -> bool:
    if isinstance(wrapper, str):
        return ":" not in wrapper.partition("?")[0]
    kind = getattr(wrapper, "func", wrapper)
    module = getattr(kind, "__module__", None)
    return isinstance(module, str) and module.startswith(("palestra.adapters.", "palestra.wrappers."))


def _range_of(spec: EnvSpec, max_turns: int | None) -> Bounds | None:
    try:
        kind = spec.factory(spec.kwargs)
    except PalestraError:
        return None  # its episodes fail with the reason
    if (declared := _finite(getattr(kind, "score_range", None))) is not None:
        return declared
    per_step = _finite(getattr(kind, "reward_range", None))
    limits = [limit for limit in (max_turns, spec.max_turns, getattr(kind, "max_turns", None)) if isinstance(limit, int)]
    if per_step is None or not limits:
        return None
    return min(min(limits) * per_step[0], 0.0), max(min(limits) * per_step[1], 0.0)


def _finite(bounds: object) -> Bounds | None:
    """``bounds`` if both are finite numbers."""
    if not isinstance(bounds, tuple) or len(bounds) != 2:
        return None
    low, high = bounds
    numbers = isinstance(low, int | float) and isinstance(high, int | float)
    return (float(low), float(high)) if numbers and math.isfinite(low) and math.isfinite(high) else None
