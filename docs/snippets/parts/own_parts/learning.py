"""What learns: a grader, a group reward, a horizon, an advantage, a loss and a writer of metrics."""

import csv
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from palestra.recipes.algorithms import AdvantageConfig, LossConfig
from palestra.training import Credit, TrainConfig
from palestra.training.algorithms.advantage import Credits
from palestra.training.algorithms.groups import Groups
from palestra.training.algorithms.horizon import StepOutcome
from palestra.training.algorithms.loss import PolicyTokens
from palestra.trajectory import Trajectory, TrajectoryGroup


def mentioned(trajectory: Trajectory, partial: float = 0.0) -> float:
    """Pay 1 if the last action is the answer, and ``partial`` if it contains the answer."""
    last = trajectory.turns[-1]
    if last.action.strip() == last.info.get("answer"):
        return 1.0
    return partial if str(last.info.get("answer")) in last.action else 0.0


class PairwiseJudge:
    """Compares every two episodes of a group and pays the share of comparisons that an episode wins."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    async def __call__(self, group: TrajectoryGroup) -> list[float]:
        wins = [0.0] * len(group.members)
        for i, j in itertools.combinations(range(len(wins)), 2):
            wins[i if await self.prefers(group.members[i], group.members[j]) else j] += 1
        return [self.weight * won / max(len(wins) - 1, 1) for won in wins]

    async def prefers(self, left: Trajectory, right: Trajectory) -> bool:
        """Ask a model here. This judge prefers the shorter episode."""
        return sum(len(turn.action) for turn in left.turns) <= sum(len(turn.action) for turn in right.turns)


def doubling(step: int, outcomes: Sequence[StepOutcome], most: int) -> int:
    """Allow 1, 2, 4, … turns, up to ``most``."""
    return min(2**step, most)


def centered(groups: Groups, config: AdvantageConfig, scale: float = 1.0) -> Credits:
    """Return the reward minus the mean of the group, times ``scale``. A member without a result is ``None``."""
    credits: Credits = []
    for group in groups:
        mean = np.mean([member.rewards.sum() for member in group if member is not None] or [0.0])
        credits.append(
            [m and Credit(m, np.full(len(m.rewards), scale * (m.rewards.sum() - mean))) for m in group],
        )
    return credits


def unclipped(new: Tensor, ratio: Tensor, tokens: PolicyTokens, config: LossConfig, bound: float = 10.0) -> Tensor:
    """Return the ratio times the advantage, without a trust region."""
    return ratio.clamp(max=bound) * tokens.advantages


class CsvWriter:
    """Writes one line per step into a CSV file of the run folder."""

    def __init__(self, folder: Path, config: TrainConfig, columns: Sequence[str] = ("step", "reward")) -> None:
        self.columns = columns
        self.file = (folder / "metrics.csv").open("a", newline="")

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        csv.writer(self.file).writerow([metrics.get(column) for column in self.columns])

    def close(self) -> None:
        self.file.close()
