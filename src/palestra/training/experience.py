"""From a step's groups to a batch that can be learned from, with the fate of every member.

The order matters: poisoned members go first, so that they are in no statistic; then the trainer's own measurements, which may
name a few more; then the rule for partial groups; and advantages last, over everything that is left.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from palestra.training.advantage import AdvantageConfig, advantages
from palestra.training.batch import Batch
from palestra.training.groups import Array, Episode, GroupCounts, PartialGroups, episode_of, select
from palestra.training.learner import Learner, Measured
from palestra.training.loss import kl_estimate
from palestra.training.quarantine import Limits, inspect_measured, quarantine
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["USED", "Experience", "prepare"]

USED = "used"


@dataclass(frozen=True, eq=False)
class Experience:
    """What a step learns from."""

    batch: Batch
    fates: list[list[str]]
    """Of every member: ``used``, ``failed``, the poison's name, ``held`` or ``dropped`` with its group."""
    counts: GroupCounts
    poisons: dict[str, int]
    staleness: int = 0
    """How many versions the oldest token lags behind."""


def prepare(
    groups: Sequence[TrajectoryGroup], learner: Learner, advantage: AdvantageConfig, partial: PartialGroups, limits: Limits
) -> Experience:
    """Sort, measure and value a step's groups."""
    sorted_out = quarantine(groups, limits)
    fates = [["failed" if member is None else USED for member in group] for group in sorted_out.groups]
    for finding in sorted_out.findings:
        fates[finding.group][finding.member] = finding.kind
    places = [(g, m) for g, group in enumerate(sorted_out.groups) for m, member in enumerate(group) if member is not None]
    kept = [member for group in sorted_out.groups for member in group if member is not None]
    batch = Batch.of(kept)
    batch, measured = _measure(batch, learner, advantage)
    episodes: list[list[Episode | None]] = [[None] * len(group) for group in sorted_out.groups]
    for e, (g, m) in enumerate(places):
        tokens = batch.tokens_of(e)
        poison = inspect_measured(batch.sampled[tokens], measured.logprobs[tokens], limits)
        if poison is not None:
            fates[g][m] = poison
        else:
            episodes[g][m] = _episode(kept[e], e, batch, measured, advantage)
    selection = select(episodes, partial)
    for g in (*selection.held, *selection.dropped):
        fate = "held" if g in selection.held else "dropped"
        fates[g] = [fate if was == USED else was for was in fates[g]]
    credits = dict(zip(selection.used, advantages([episodes[g] for g in selection.used], advantage), strict=True))
    chosen = [e for e, (g, m) in enumerate(places) if fates[g][m] == USED]
    valued = [credits[g][m] for g, m in (places[e] for e in chosen)]
    batch = batch.take(chosen)
    flat = [credit.per_token() for credit in valued if credit is not None]
    targets = [credit.targets for credit in valued if credit is not None and credit.targets is not None]
    return Experience(
        batch=replace(
            batch,
            advantages=np.concatenate([np.zeros(0), *flat]),
            targets=np.concatenate(targets) if targets else None,
        ),
        fates=fates,
        counts=selection.counts,
        poisons={str(kind): count for kind, count in Counter(f for row in fates for f in row).items() if kind not in _FATES},
        staleness=max((limits.version - span.version for one in kept for s in one.segments for span in s.spans), default=0),
    )


_FATES = (USED, "failed", "held", "dropped")


def _measure(batch: Batch, learner: Learner, advantage: AdvantageConfig) -> tuple[Batch, Measured]:
    """The batch with what the present policy, the critic and the reference say of its tokens."""
    measured = learner.measure(batch)
    reference = None
    if advantage.kl_in_reward or learner.config.loss.kl_coefficient:
        reference = learner.measure_reference(batch)
    return replace(batch, old=measured.logprobs, values=measured.values, reference=reference), measured


def _episode(trajectory: Trajectory, e: int, batch: Batch, measured: Measured, config: AdvantageConfig) -> Episode:
    episode = episode_of(trajectory)
    assert episode is not None
    tokens = batch.tokens_of(e)
    return replace(
        episode,
        kl=None if batch.reference is None else _kl(measured.logprobs[tokens], batch.reference[tokens], config),
        values=None if measured.values is None else measured.values[tokens],
        final_value=0.0 if measured.final_values is None else float(measured.final_values[e]),
    )


def _kl(new: Array, reference: Array, config: AdvantageConfig) -> Array:
    estimate: Array = kl_estimate(torch.from_numpy(new), torch.from_numpy(reference), config.kl).numpy()
    return estimate
