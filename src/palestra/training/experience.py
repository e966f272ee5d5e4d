"""From the groups of a step to the batch that it learns from, with the outcome of every member.

The order matters. Invalid members go first, so that they are in no statistic. Then rewards are shaped. Then the learner
measures the batch, which may reveal a few more invalid members. Then the rule for partial groups applies. Advantages come last,
over what is left. One table of rows, aligned with the groups, follows every member on this way.

If the learner does not measure first (``Learner.measures_first``), the update does it, in the same pass that it learns from.
Segments whose log-probabilities are not finite, or differ too much from those of the sampler, are then left out of the loss,
but not out of their group's statistics. The other segments of their episode are learned from. ``Experience.after`` enters what
the update has seen.
"""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from palestra.recipes.algorithms import AdvantageConfig, PartialGroups, Shaping
from palestra.training.algorithms.advantage import Credit, advantages
from palestra.training.algorithms.groups import Array, GroupCounts, GroupMember, episode_of, select
from palestra.training.algorithms.loss import kl_estimate
from palestra.training.algorithms.shaping import CUTS, shaped
from palestra.training.algorithms.validity import (
    MISMATCH,
    InvalidSample,
    SampleLimits,
    inspect_measured,
    inspect_segments,
    quarantine,
)
from palestra.training.learner.batch import Batch, Index
from palestra.training.learner.learner import Learner, Measured, unsound_segments
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["MASKED", "USED", "Experience", "any_used", "prepare"]

USED = "used"
FAILED = "failed"
MASKED = "masked"
DROPPED = "dropped"
ABSENT = "absent"
_OUTCOMES = (USED, FAILED, MASKED, DROPPED, ABSENT)
_AS_PLAYED = Shaping()


@dataclass(frozen=True, eq=False)
class Experience:
    """What a step learns from."""

    batch: Batch
    outcomes: list[list[str]]
    """Of every member: ``used``, ``failed``, ``masked``, ``dropped`` with its group, ``absent`` if an opponent ended the game
    before the model acted, or the name of what is invalid."""
    counts: GroupCounts
    invalid: dict[str, int]
    """Invalid members by what is wrong with them."""
    staleness: int = 0
    """How many versions the oldest token is behind."""
    measured: dict[str, float] = field(default_factory=dict)
    """Metrics of the whole step from the learner's measurements."""
    members: list[tuple[int, int]] = field(default_factory=list)
    """Group and place of every episode of ``batch``."""
    envs: list[str] = field(default_factory=list)
    """The environment of every episode of ``batch``."""
    left_out: dict[int, str] = field(default_factory=dict)
    """The segments of ``batch`` that the update left out of the loss, with what is wrong with each."""

    def counted(self, groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
        """Return the groups that this experience was prepared from, without the members that are invalid.

        Curves, horizons and the choice of tasks read these: what an invalid sample says about the policy is not known.
        """
        return [
            TrajectoryGroup(group.task, tuple(m for m, outcome in zip(group.members, row, strict=True) if outcome in _OUTCOMES))
            for group, row in zip(groups, self.outcomes, strict=True)
        ]

    def members_by_outcome(self) -> dict[str, int]:
        """Return how many members were used, failed, invalid, masked and absent, and how many went with their group.

        Every member is in one of these numbers.
        """
        counts = Counter(itertools.chain(*self.outcomes))
        fates = {name: counts[name] for name in (USED, FAILED, MASKED, ABSENT)}
        return {
            **fates,
            "invalid": sum(self.invalid.values()),
            "dropped": self.counts.dropped,
            "constant": self.counts.constant,
        }

    def after(self, measured: Measured | None) -> "Experience":
        """Return the experience with what an update has measured of its batch; ``None`` if it was measured before."""
        if measured is None:
            return self
        outcomes, left_out = [list(row) for row in self.outcomes], dict[int, str]()
        for e, (group, member) in enumerate(self.members):
            tokens = self.batch.tokens_of(e)
            if measured.computed is not None and not measured.computed[tokens].any():
                continue  # the update had nothing to learn from this episode
            segments = self.batch.segments[tokens]
            wrong = inspect_segments(self.batch.sampled[tokens], measured.logprobs[tokens], segments, MISMATCH)
            left_out |= {segment: str(kind) for segment, kind in wrong.items()}
            if wrong and wrong.keys() == set(segments.tolist()):
                outcomes[group][member] = str(_inspected(self.batch, measured, tokens, MISMATCH))
        metrics = {**_agreement(self.batch, measured), **_entropies(self.envs, self.batch, measured)}
        return replace(self, outcomes=outcomes, invalid=_invalid(outcomes), measured=metrics, left_out=left_out)


@dataclass(eq=False)
class _Row:
    """A member of a group on its way into the batch."""

    outcome: str
    trajectory: Trajectory | None = None
    """With shaped rewards; ``None`` if nothing of it can be learned from."""
    member: GroupMember | None = None
    """What advantages are computed from; ``None`` if the learner's measurements reject it."""
    credit: Credit | None = None


def prepare(
    groups: Sequence[TrajectoryGroup],
    learner: Learner,
    advantage: AdvantageConfig,
    partial: PartialGroups,
    limits: SampleLimits,
    shaping: Shaping = _AS_PLAYED,
) -> Experience:
    """Sort, shape, measure and value a step's groups."""
    reasons = quarantine(groups, limits)
    table = [[_row(*pair, shaping) for pair in zip(g.members, r, strict=True)] for g, r in zip(groups, reasons, strict=True)]
    entering = [row for rows in table for row in rows if row.trajectory is not None]
    kept = [row.trajectory for row in entering if row.trajectory is not None]
    every, measured = _measure(Batch.of(kept), learner, advantage)
    unsound = unsound_segments(every)
    for e, (row, trajectory) in enumerate(zip(entering, kept, strict=True)):
        reason = None
        if measured is not None:
            reason = _inspected(every, measured, every.tokens_of(e), limits.mismatch)
            segments = set(every.segments[every.tokens_of(e)].tolist())
            # A single NaN in a reward makes those of the group NaN. In the loss, the other segments can be learned from.
            if unsound & segments and (advantage.kl_in_reward or segments <= unsound):
                reason = InvalidSample.RECOMPUTED_NOT_FINITE
        if reason is None:
            row.member = _member(trajectory, e, every, measured, advantage, shaping)
        else:
            row.outcome = str(reason)
    counts = _value(table, advantage, partial)
    chosen = [e for e, row in enumerate(entering) if row.outcome == USED]
    credits = [_credit_of(entering[e]) for e in chosen]
    outcomes = [[row.outcome for row in rows] for rows in table]
    places = {id(row): (g, m) for g, rows in enumerate(table) for m, row in enumerate(rows)}
    envs = [trajectory.task.env for trajectory in kept]
    batch = _credited(every.take(chosen), credits)
    return Experience(
        batch=batch,
        outcomes=outcomes,
        counts=counts,
        invalid=_invalid(outcomes),
        staleness=max((limits.version - span.version for t in kept for s in t.segments for span in s.spans), default=0),
        measured={} if measured is None else {**_agreement(every, measured), **_entropies(envs, every, measured)},
        members=[places[id(entering[e])] for e in chosen],
        envs=[envs[e] for e in chosen],
        left_out=dict.fromkeys(sorted(unsound_segments(batch)), str(InvalidSample.RECOMPUTED_NOT_FINITE)),
    )


def any_used(groups: Sequence[TrajectoryGroup], partial: PartialGroups, limits: SampleLimits, shaping: Shaping) -> bool:
    """Whether the rule ``partial`` would use any of ``groups``, as far as can be said before the learner measures them."""

    def view(member: Trajectory, reason: InvalidSample | None) -> GroupMember | None:
        row = _row(member, reason, shaping)
        return None if row.trajectory is None else episode_of(row.trajectory)

    reasons = quarantine(groups, limits)
    members = [[view(*pair) for pair in zip(g.members, r, strict=True)] for g, r in zip(groups, reasons, strict=True)]
    return bool(select(members, partial).used)


def _inspected(batch: Batch, measured: Measured, tokens: Index, mismatch: float) -> InvalidSample | None:
    """What the learner's log-probabilities reveal about the episode of ``tokens``."""
    return inspect_measured(batch.sampled[tokens], measured.logprobs[tokens], batch.segments[tokens], mismatch)


def _invalid(outcomes: Sequence[Sequence[str]]) -> dict[str, int]:
    return {name: n for name, n in Counter(itertools.chain(*outcomes)).items() if name not in _OUTCOMES}


def _row(trajectory: Trajectory, reason: InvalidSample | None, shaping: Shaping) -> _Row:
    if trajectory.stop.failed:
        return _Row(FAILED)
    if trajectory.player and not trajectory.turns:
        return _Row(ABSENT)
    if reason is not None:
        return _Row(str(reason))
    left = shaped(trajectory, shaping)
    return _Row(MASKED) if left is None else _Row(USED, left)


def _value(table: Sequence[Sequence[_Row]], advantage: AdvantageConfig, partial: PartialGroups) -> GroupCounts:
    """Drop groups by the rule ``partial`` and give every row that is left its credit."""
    members = [[row.member for row in rows] for rows in table]
    selection = select(members, partial)
    for row in (row for g in selection.dropped for row in table[g] if row.outcome == USED):
        row.outcome = DROPPED
    valued = advantages([members[g] for g in selection.used], advantage)
    for g, credits in zip(selection.used, valued, strict=True):
        for row, credit in zip(table[g], credits, strict=True):
            row.credit = credit
    return selection.counts


def _credit_of(row: _Row) -> Credit:
    assert row.credit is not None, "a member that is used has no credit"
    return row.credit


def _credited(batch: Batch, credits: Sequence[Credit]) -> Batch:
    """Enter the credits of the episodes of ``batch``. A credit follows the turns, the batch its segments."""
    advantages = np.zeros(len(batch.positions))
    targets = np.full(len(batch.positions), np.nan)
    for e, credit in enumerate(credits):
        tokens = batch.tokens_of(e)
        advantages[tokens] = credit.per_token()
        if credit.targets is not None:
            targets[tokens] = credit.targets
    has_targets = any(credit.targets is not None for credit in credits)
    return replace(batch, advantages=advantages, targets=targets if has_targets else None)


def _agreement(batch: Batch, measured: Measured) -> dict[str, float]:
    """How far the trainer's policy is from the one that sampled: KL(μ‖π_old) by its k3 estimator, and the worst token."""
    difference = measured.logprobs - batch.sampled
    difference = difference[~np.isnan(difference)]
    if not len(difference):
        return {}
    bounded = np.clip(difference, -20.0, 20.0)
    return {
        "sampler/kl": float((np.expm1(bounded) - bounded).mean()),
        "sampler/worst_token": float(np.abs(difference).max()),
    }


def _entropies(names: Sequence[str], batch: Batch, measured: Measured) -> dict[str, float]:
    """The mean entropy of the policy per environment, in nats per token; ``names`` are the environments of the episodes."""
    envs = np.array(names)[batch.episodes] if len(batch.positions) else np.zeros(0)
    seen = ~np.isnan(measured.entropies)
    return {f"env/{env}/entropy": float(measured.entropies[seen & (envs == env)].mean()) for env in np.unique(envs[seen])}


def _measure(batch: Batch, learner: Learner, advantage: AdvantageConfig) -> tuple[Batch, Measured | None]:
    """Add what the current policy, the critic and the reference say about the tokens of ``batch``."""
    reference = None
    if advantage.kl_in_reward or learner.config.loss.kl_coefficient:
        reference = learner.measure_reference(batch)
    if not learner.measures_first:
        return replace(batch, reference=reference), None
    measured = learner.measure(batch)
    return replace(batch, old=measured.logprobs, values=measured.values, reference=reference), measured


def _member(
    trajectory: Trajectory, e: int, batch: Batch, measured: Measured | None, config: AdvantageConfig, shaping: Shaping
) -> GroupMember:
    """What the advantage of ``trajectory``, which is episode ``e`` of ``batch``, is computed from."""
    member = episode_of(trajectory)
    assert member is not None
    tokens = batch.tokens_of(e)
    # ``shaping`` has decided the reward of a cut turn, and nothing after that turn has a value.
    # That is also so if the turn of another player was cut: the game has ended.
    ended = trajectory.stop in CUTS and shaping.cut != "mask"
    member = replace(member, terminated=member.terminated or ended)
    if measured is None:
        return member
    return replace(
        member,
        kl=None if batch.reference is None else _kl(measured.logprobs[tokens], batch.reference[tokens], config),
        values=None if measured.values is None else measured.values[tokens],
        final_value=0.0 if measured.final_values is None else float(measured.final_values[e]),
    )


def _kl(new: Array, reference: Array, config: AdvantageConfig) -> Array:
    estimate: Array = kl_estimate(torch.from_numpy(new), torch.from_numpy(reference), config.kl).numpy()
    return estimate
