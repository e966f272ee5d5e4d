"""Held-out evaluation during a run: the same tasks every time, each evaluation in a folder of its own.

The score is the environment's own: neither ``play.grader`` nor ``play.group_reward`` changes it.

::

    run/evaluations/step-00000008/   what ``palestra eval`` writes, with the weights after step 8
"""

from collections.abc import Mapping
from pathlib import Path

from palestra.core import Policy
from palestra.evaluation import evaluate_async
from palestra.training.config import EvaluationSettings, TrainConfig
from palestra.training.tasks import held_out_seed

__all__ = ["EVALUATIONS", "evaluate_held_out"]

EVALUATIONS = "evaluations"


async def evaluate_held_out(
    config: TrainConfig, settings: EvaluationSettings, policy: Policy, folder: Path, step: int
) -> Mapping[str, float]:
    """Play the held-out tasks with the weights after ``step`` and return the score, its interval and the coverage."""
    report = await evaluate_async(
        list(settings.envs or config.envs),
        policy,
        n=settings.n,
        out=folder / EVALUATIONS / f"step-{step:08d}",
        seed=held_out_seed(config),
        concurrency=config.play.concurrency,
        deadline=config.play.deadline,
    )
    suite = report.suite
    numbers = {"coverage": suite.scored / max(suite.issued, 1)}
    if suite.score is not None:
        numbers |= {"score": suite.score.mean, "low": suite.score.low, "high": suite.score.high}
    return numbers if suite.success is None else {**numbers, "success": suite.success.mean}
