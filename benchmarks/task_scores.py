"""Scores of single tasks, for benchmarks that compare a policy before and after training."""

from collections.abc import Sequence
from typing import Any

from palestra.evaluation import Score
from palestra.rollouts import rollout
from palestra.trajectory import Task


async def play_tasks(tasks: Sequence[Task], player: Any, concurrency: int) -> list[Score]:
    """Return the scores of one episode per task. An episode that failed has none."""
    played = [one async for one in rollout(tasks, player, seed=1, concurrency=concurrency)]
    return [Score((), one.group, one.reward) for one in played if one.reward is not None]
