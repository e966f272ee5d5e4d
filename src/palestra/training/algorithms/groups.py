"""What an advantage is computed from: groups of episodes, seen as rewards per turn, and the choice of groups for a step.

A ``GroupMember`` is the light view of a finished ``Trajectory``. A member that failed, or that is invalid, is ``None``: it has
no reward, so it cannot be averaged in as a zero. A rule decides what happens to its group, and every member is counted once::

    rule        a group with a member that is None
    ----------  -----------------------------------------------------------------------------------------------------------
    at_least    is used with the members that finished, if there are at least ``minimum`` of them; otherwise dropped
    drop        is dropped
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.recipes.algorithms import PartialGroups
from palestra.trajectory import Content, Trajectory

__all__ = [
    "Array",
    "GroupCounts",
    "GroupMember",
    "GroupSelection",
    "Groups",
    "episode_of",
    "select",
]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class GroupMember:
    """One finished episode of K turns and T sampled tokens, in the order of the turns.

    The learner measures the last three fields if they are needed.
    """

    rewards: Array
    """One per turn (K)."""
    lengths: npt.NDArray[np.int64]
    """The number of sampled tokens of each turn (K). They sum to T."""
    terminated: bool
    """Whether the environment ended the episode. If a limit cut it, the future after the last turn has a value."""
    anchors: tuple[Content, ...] = ()
    """The observation before each turn (K). GiGPO compares turns with the same observation."""
    role: tuple[str, str] = ("", "")
    """The environment and the player. RAE compares episodes of the same role."""
    kl: Array | None = None
    """KL to the reference at each sampled token (T), for a penalty inside the reward."""
    values: Array | None = None
    """The critic's value of the state before each sampled token (T)."""
    final_value: float = 0.0
    """The critic's value after the last turn. Used only if the episode was cut."""

    def __post_init__(self) -> None:
        if len(self.rewards) != len(self.lengths):
            raise ValueError(f"{len(self.rewards)} turn rewards but {len(self.lengths)} turn lengths")
        for name, array in (("kl", self.kl), ("values", self.values)):
            if array is not None and len(array) != self.tokens:
                raise ValueError(f"{self.tokens} sampled tokens but {len(array)} {name}")

    @property
    def tokens(self) -> int:
        """The number of sampled tokens (T)."""
        return int(self.lengths.sum())

    @property
    def bootstrap(self) -> float:
        """The value of the future after the last turn: 0 if the environment ended the episode."""
        return 0.0 if self.terminated else self.final_value


Groups = Sequence[Sequence[GroupMember | None]]
"""Groups of members; ``None`` is a member that failed."""


def episode_of(trajectory: Trajectory) -> GroupMember | None:
    """Return the view of ``trajectory`` that algorithms use; ``None`` if the episode failed."""
    if trajectory.stop.failed:
        return None
    lengths = np.zeros(len(trajectory.turns), dtype=np.int64)
    for segment in trajectory.segments:
        for span in segment.spans:
            lengths[span.turn] += span.stop - span.start
    return GroupMember(
        rewards=np.array([turn.reward for turn in trajectory.turns], dtype=np.float64),
        lengths=lengths,
        terminated=trajectory.terminated,
        anchors=tuple(turn.observation for turn in trajectory.turns),
        role=(trajectory.task.env, trajectory.player),
    )


# ---------------------------------------------------------------------------------------------------------- partial groups


class GroupCounts(msgspec.Struct, frozen=True):
    """What became of every member: ``members = used + failed + dropped + constant``. The last field counts groups."""

    members: int = 0
    used: int = 0
    failed: int = 0
    """Members without a result, in any group."""
    dropped: int = 0
    """Finished members of groups that were dropped because other members failed."""
    constant: int = 0
    """Finished members of groups that were dropped because all rewards are the same."""
    constant_groups: int = 0
    """Groups of two or more finished members with the same reward, used or not."""


class GroupSelection(msgspec.Struct, frozen=True):
    """The indices of the groups that are used and dropped, and the counts of members."""

    used: tuple[int, ...]
    dropped: tuple[int, ...]
    counts: GroupCounts


def select(groups: Groups, policy: PartialGroups) -> GroupSelection:
    """Decide which groups are used. A group that is used is used with all members that finished."""
    verdicts = [_verdict(group, policy) for group in groups]
    finished = [sum(member is not None for member in group) for group in groups]
    members = sum(len(group) for group in groups)

    def count(verdict: str) -> int:
        return sum(n for n, v in zip(finished, verdicts, strict=True) if v == verdict)

    counts = GroupCounts(
        members=members,
        used=count("used"),
        failed=members - sum(finished),
        dropped=count("dropped"),
        constant=count("constant"),
        constant_groups=sum(n > 1 and _is_constant(group) for n, group in zip(finished, groups, strict=True)),
    )
    used = tuple(g for g, verdict in enumerate(verdicts) if verdict == "used")
    return GroupSelection(used, tuple(g for g in range(len(groups)) if g not in used), counts)


def _verdict(group: Sequence[GroupMember | None], policy: PartialGroups) -> str:
    finished = [member for member in group if member is not None]
    partial = len(finished) < len(group) or not group
    if partial and (policy.rule == "drop" or len(finished) < policy.minimum):
        return "dropped"
    return "constant" if not policy.keep_constant and _is_constant(group) else "used"


def _is_constant(group: Sequence[GroupMember | None]) -> bool:
    return len({float(member.rewards.sum()) for member in group if member is not None}) == 1
