"""What an advantage is computed from: groups of episodes, seen as turn rewards, and which groups may be used.

An ``Episode`` is the light view of a finished ``Trajectory``. A member that failed, or that was quarantined, is ``None``: it
has no reward, so it cannot be averaged in as a zero. What then happens to its group is an explicit rule, and every member is
counted exactly once::

    rule        a group with a failed member
    ----------  ----------------------------------------------------------------------------------------------------------
    complete    is held back: the caller plays the missing members again, or gives it up
    at_least    is used, with the statistics of those that finished, if at least ``minimum`` did; else dropped
    drop        is dropped whole
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.errors import UsageError
from palestra.trajectory import Content, Trajectory, TrajectoryGroup

__all__ = ["Array", "Episode", "GroupCounts", "Groups", "PartialGroups", "Selection", "check_group", "episode_of", "select"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Episode:
    """One finished episode of K turns and T sampled tokens. The last three fields are what the learner measured, if it did."""

    rewards: Array
    """One per turn (K)."""
    lengths: npt.NDArray[np.int64]
    """How many tokens were sampled in each turn (K); they sum to T."""
    terminated: bool
    """The environment reached an end of its own. If not, somebody cut it, and the future has a value."""
    anchors: tuple[Content, ...] = ()
    """What the policy saw before each turn (K): GiGPO compares turns that saw the same."""
    kl: Array | None = None
    """KL to the reference at each sampled token (T), for a penalty inside the reward."""
    values: Array | None = None
    """What the critic expects from the state before each sampled token (T)."""
    final_value: float = 0.0
    """What the critic expects after the last turn. Used only if the episode was cut."""

    def __post_init__(self) -> None:
        if len(self.rewards) != len(self.lengths):
            raise ValueError(f"{len(self.rewards)} turn rewards but {len(self.lengths)} turn lengths")
        for name, array in (("kl", self.kl), ("values", self.values)):
            if array is not None and len(array) != self.tokens:
                raise ValueError(f"{self.tokens} sampled tokens but {len(array)} {name}")

    @property
    def tokens(self) -> int:
        """How many tokens were sampled in all."""
        return int(self.lengths.sum())

    @property
    def bootstrap(self) -> float:
        """The value of what comes after the last turn: nothing if the episode ended by itself."""
        return 0.0 if self.terminated else self.final_value


Groups = Sequence[Sequence[Episode | None]]
"""Groups of members; ``None`` is a member that failed."""


def episode_of(trajectory: Trajectory) -> Episode | None:
    """The view of ``trajectory`` that algorithms see; ``None`` if it failed."""
    if trajectory.stop.failed:
        return None
    lengths = np.zeros(len(trajectory.turns), dtype=np.int64)
    for segment in trajectory.segments:
        for span in segment.spans:
            lengths[span.turn] += span.stop - span.start
    return Episode(
        rewards=np.array([turn.reward for turn in trajectory.turns], dtype=np.float64),
        lengths=lengths,
        terminated=trajectory.terminated,
        anchors=tuple(turn.observation for turn in trajectory.turns),
    )


def check_group(group: TrajectoryGroup) -> None:
    """Raise unless all members played the group's task, in the same group and from the same run seed."""
    for member in group.members:
        if member.task != group.task:
            raise UsageError(f"a group shares one task: expected {group.task}, member {member.member} played {member.task}")
    origins = {(member.seed, member.group, member.player) for member in group.members}
    if len(origins) > 1:
        raise UsageError(f"a group has one (seed, group, player), got {sorted(origins)}: do not mix rollouts into one group")


# ---------------------------------------------------------------------------------------------------------- partial groups


class PartialGroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What becomes of a group in which a member failed."""

    rule: Literal["complete", "at_least", "drop"] = "at_least"
    """See the table in the module's docstring."""
    minimum: Annotated[int, msgspec.Meta(ge=1)] = 2
    """For ``at_least``: how many members must have finished."""
    keep_constant: bool = True
    """Keep groups whose members all got the same reward. DAPO drops them: they teach a group method nothing."""


class GroupCounts(msgspec.Struct, frozen=True):
    """Where every member went: ``members = used + failed + held + dropped + constant``."""

    members: int = 0
    used: int = 0
    failed: int = 0
    """Members without a result, whatever became of their group."""
    held: int = 0
    """Finished members whose group waits for the others."""
    dropped: int = 0
    """Finished members whose group was dropped for being partial."""
    constant: int = 0
    """Finished members whose group was dropped for having one reward only."""


class Selection(msgspec.Struct, frozen=True):
    """Indices of the groups, by what becomes of them, and the count of members."""

    used: tuple[int, ...]
    held: tuple[int, ...]
    dropped: tuple[int, ...]
    counts: GroupCounts


def select(groups: Groups, policy: PartialGroups) -> Selection:
    """Sort groups by ``policy``. Nothing is sampled or cut here: a group that is used is used with all who finished."""
    verdicts = [_verdict(group, policy) for group in groups]
    finished = [sum(member is not None for member in group) for group in groups]
    members = sum(len(group) for group in groups)

    def count(verdict: str) -> int:
        return sum(n for n, v in zip(finished, verdicts, strict=True) if v == verdict)

    def indices(*wanted: str) -> tuple[int, ...]:
        return tuple(i for i, v in enumerate(verdicts) if v in wanted)

    counts = GroupCounts(
        members=members,
        used=count("used"),
        failed=members - sum(finished),
        held=count("held"),
        dropped=count("dropped"),
        constant=count("constant"),
    )
    return Selection(indices("used"), indices("held"), indices("dropped", "constant"), counts)


def _verdict(group: Sequence[Episode | None], policy: PartialGroups) -> str:
    finished = [member for member in group if member is not None]
    if len(finished) < len(group) or not group:
        if policy.rule == "complete":
            return "held"
        if policy.rule == "drop" or len(finished) < policy.minimum:
            return "dropped"
    if not policy.keep_constant and len({float(member.rewards.sum()) for member in finished}) == 1:
        return "constant"
    return "used"
