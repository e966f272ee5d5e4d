"""What a run leaves to look at: a line of numbers for every step, and some of its episodes.

::

    metrics.jsonl        one line a step
    trajectories.jsonl   sampled groups of every step, for ``palestra view``: with the step, and each turn's advantage
    vocabulary.json      the text of every token id

All are in the order of the steps, so a run that goes on after a crash cuts off what the checkpoint does not know of.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from palestra.rollout import TrajectoryWriter
from palestra.training.checkpoint import sync_file
from palestra.training.experience import USED, Experience
from palestra.training.groups import Array
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["RunRecord", "read_metrics"]


class RunRecord:
    """The record in one run's folder."""

    def __init__(self, folder: Path) -> None:
        self._metrics = folder / "metrics.jsonl"
        self._trajectories = folder / "trajectories.jsonl"
        self._vocabulary = folder / "vocabulary.json"

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Append a step's numbers; on return they are on the disk."""
        with self._metrics.open("ab") as file:
            file.write(msgspec.json.encode({"step": step, **metrics}) + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def sample(self, step: int, groups: Sequence[TrajectoryGroup], experience: Experience) -> None:
        """Append the members of ``groups``, which are the first of those that ``experience`` came from."""
        advantages = _advantages(groups, experience)
        with TrajectoryWriter(self._trajectories) as writer:
            for group, row in zip(groups, advantages, strict=True):
                for member, values in zip(group.members, row, strict=True):
                    writer.write(_noted(member, step, values))

    def name_tokens(self, decode: Callable[[list[int]], str], count: int) -> None:
        """Write down what every token id says, once."""
        if not self._vocabulary.exists():
            self._vocabulary.write_bytes(msgspec.json.encode([decode([token]) for token in range(count)]))

    def trim(self, step: int) -> None:
        """Leave out everything after ``step``."""
        _cut(self._metrics, lambda line: msgspec.json.decode(line, type=_Metrics).step > step)
        _cut(self._trajectories, lambda line: msgspec.json.decode(line, type=_Kept).info.step > step)


def read_metrics(folder: str | Path) -> list[dict[str, Any]]:
    """The numbers of every step in a run's folder. A torn last line is left out."""
    lines = (Path(folder) / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]


class _Metrics(msgspec.Struct):
    step: int


class _Kept(msgspec.Struct):
    info: _Metrics


def _cut(path: Path, is_later: Callable[[bytes], bool]) -> None:
    """Drop the lines from the first that is torn or later. The file is replaced, so no crash can lose the rest."""
    if not path.exists():
        return
    trimmed = path.with_suffix(".new")
    with path.open("rb") as old, trimmed.open("wb") as new:
        for line in old:
            if not line.endswith(b"\n") or is_later(line):
                break
            new.write(line)
    sync_file(trimmed)
    os.replace(trimmed, path)


def _advantages(groups: Sequence[TrajectoryGroup], experience: Experience) -> list[list[Array | None]]:
    """The advantages of every member's tokens; ``None`` where it was not used."""
    batch, used = experience.batch, 0
    rows: list[list[Array | None]] = []
    for _, fates in zip(groups, experience.fates, strict=False):
        row: list[Array | None] = []
        for fate in fates:
            known = fate == USED and batch.advantages is not None
            row.append(batch.advantages[batch.tokens_of(used)] if known and batch.advantages is not None else None)
            used += fate == USED
        rows.append(row)
    return rows


def _noted(member: Trajectory, step: int, advantages: Array | None) -> Trajectory:
    info = {**member.info, "step": step}
    if advantages is None:
        return msgspec.structs.replace(member, info=info)
    turns = np.repeat(
        [span.turn for segment in member.segments for span in segment.spans],
        [span.stop - span.start for segment in member.segments for span in segment.spans],
    )
    means = {int(turn): float(advantages[turns == turn].mean()) for turn in np.unique(turns)}
    noted = tuple(
        msgspec.structs.replace(turn, info={**turn.info, "advantage": means[k]}) if k in means else turn
        for k, turn in enumerate(member.turns)
    )
    return msgspec.structs.replace(member, info=info, turns=noted)
