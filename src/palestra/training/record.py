"""The record of a run: a line of metrics per step, and a sample of its episodes.

::

    metrics.jsonl        one line per step
    trajectories.jsonl   sampled groups of every step, for ``palestra view``: with the step, and each turn's advantage
    vocabulary.json      the text of every token id

All are in the order of the steps, so a resumed run removes what came after its checkpoint.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from palestra.durable import Inside, LineWriter, keep_lines, read_lines
from palestra.errors import SchemaError
from palestra.foundation.encoding import decode_json
from palestra.rollouts import TrajectoryWriter
from palestra.training.algorithms.groups import Array
from palestra.training.experience import USED, Experience
from palestra.training.heldout import EVALUATIONS
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["RunRecord", "read_metrics"]

_STEP = re.compile(r"step-\d{8,}")
"""An evaluation's folder. Whatever else stands beside it was put there by somebody else and stays."""


class RunRecord:
    """The record in one run's folder."""

    def __init__(self, folder: Path) -> None:
        inside = Inside(folder)
        self._metrics = inside / "metrics.jsonl"
        self._trajectories = inside / "trajectories.jsonl"
        self._evaluations = inside / EVALUATIONS

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a step's metrics. On return they are on the disk."""
        with LineWriter(self._metrics) as writer:
            writer.write(msgspec.json.encode({"step": step, **metrics}))

    def sample(self, step: int, groups: Sequence[TrajectoryGroup], experience: Experience) -> None:
        """Append the members of ``groups``: the first groups of those that ``experience`` was prepared from."""
        advantages = _advantages(groups, experience)
        with TrajectoryWriter(self._trajectories) as writer:
            for group, row in zip(groups, advantages, strict=True):
                for member, values in zip(group.members, row, strict=True):
                    writer.write(_noted(member, step, values))

    def trim(self, step: int) -> list[str]:
        """Remove everything after ``step``; 0 removes all. Return notes on what was damaged or missing, if anything.

        The run does not need the record to continue, so damage costs lines of it and never the run.
        """
        steps: set[int] = set()

        def is_before(line: bytes) -> bool:
            number = decode_json(line, _StepMetrics).step
            steps.add(number)
            return number <= step

        asides = {
            self._metrics: keep_lines(self._metrics, is_before),
            self._trajectories: keep_lines(self._trajectories, lambda line: decode_json(line, _Kept).info.step <= step),
        }
        notes = [
            f"{file} has damaged lines, which are left out; the file as it was is {aside}"
            for file, aside in asides.items()
            if aside
        ]
        if lost := step - len({done for done in steps if 0 < done <= step}):
            notes.append(
                f"{self._metrics} lacks the metrics of {lost} of {step} steps: the run continues, and its curves have gaps"
            )
        # These steps will be repeated, and their old evaluations would be taken for those of the new weights.
        for name in self._evaluations.names():
            if _STEP.fullmatch(name) and name > f"step-{step:08d}":
                (self._evaluations / name).remove()
        return notes


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """Return the metrics of every step in a run folder, without a torn last line."""
    file = Inside(Path(folder)) / "metrics.jsonl"
    metrics = []
    for number, line in enumerate(read_lines(file), start=1):
        try:
            metrics.append(decode_json(line, dict[str, Any]))
        except SchemaError as error:
            raise SchemaError(f"{file}, line {number}: not the metrics of a training step: {error}") from error
    return metrics


class _StepMetrics(msgspec.Struct):
    step: int


class _Kept(msgspec.Struct):
    info: _StepMetrics


def _advantages(groups: Sequence[TrajectoryGroup], experience: Experience) -> list[list[Array | None]]:
    """The advantages of every member's tokens, NaN where the update left them out; ``None`` if the member was not used.

    The outcomes do not say where a member is in the batch: what the update itself finds invalid is still in it.
    """
    batch = experience.batch
    rows: list[list[Array | None]] = [[None] * len(group.members) for group in groups]
    if batch.advantages is None:
        return rows
    for e, (group, member) in enumerate(experience.members):
        if group < len(rows) and experience.outcomes[group][member] == USED:
            tokens = batch.tokens_of(e)
            unused = np.isin(batch.segments[tokens], list(experience.left_out))
            rows[group][member] = np.where(unused, np.nan, batch.advantages[tokens])
    return rows


def _noted(member: Trajectory, step: int, advantages: Array | None) -> Trajectory:
    info = {**member.info, "step": step}
    if advantages is None:
        return msgspec.structs.replace(member, info=info)
    spoken = np.sort(np.concatenate([segment.turns[segment.mask] for segment in member.segments]))
    turns = spoken[: len(advantages)]  # a cut turn that is not learned from comes last
    used = ~np.isnan(advantages)
    turns, advantages = turns[used], advantages[used]
    means = {int(turn): float(advantages[turns == turn].mean()) for turn in np.unique(turns)}
    noted = tuple(
        msgspec.structs.replace(turn, info={**turn.info, "advantage": means[k]}) if k in means else turn
        for k, turn in enumerate(member.turns)
    )
    return msgspec.structs.replace(member, info=info, turns=noted)
