"""Held-out evaluation during a run: the same tasks every time, each evaluation in a folder of its own.

The score is the environment's own: neither ``play.grader`` nor ``play.group_reward`` changes it.

::

    run/evaluations/step-00000008/   what ``palestra eval`` writes, with the weights after step 8
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from palestra.core import Policy
from palestra.durable import Inside
from palestra.evaluation import evaluate_async
from palestra.recipes.config import TrainConfig
from palestra.recipes.play import EvaluationSettings
from palestra.training.tasks import held_out_seed

__all__ = ["EVALUATIONS", "Progress", "evaluate_held_out"]

EVALUATIONS = "evaluations"


class Progress(msgspec.Struct, frozen=True):
    """The best evaluation of a run so far."""

    best: float | None = None
    best_step: int = -1
    """How many steps had been made then; -1 before the first evaluation."""
    worse: int = 0
    """How many evaluations since then were not better."""
    metric: str = ""
    temperature: float = 0.0
    """What was compared: ``evaluation.metric`` at ``evaluation.temperature``."""

    def under(self, settings: EvaluationSettings | None) -> "Progress":
        """The progress of a run that continues with ``settings``: none if they make numbers that cannot be compared."""
        if settings is None or (self.metric, self.temperature) == (settings.metric, settings.temperature):
            return self
        return Progress(metric=settings.metric, temperature=settings.temperature)

    def after(self, done: int, value: float | None) -> "Progress":
        """The progress after an evaluation at step ``done``. One without a score says nothing."""
        if value is None:
            return self
        better = self.best is None or value > self.best
        if better:
            return msgspec.structs.replace(self, best=value, best_step=done, worse=0)
        return msgspec.structs.replace(self, worse=self.worse + 1)


async def evaluate_held_out(
    config: TrainConfig, settings: EvaluationSettings, policy: Policy, folder: Path, step: int
) -> Mapping[str, float]:
    """Play the held-out tasks with the weights after ``step`` and return the score, its interval and the coverage."""
    report = await evaluate_async(
        list(settings.envs or config.envs),
        policy,
        n=settings.n,
        out=(Inside(folder) / EVALUATIONS / f"step-{step:08d}").checked(),
        seed=held_out_seed(config),
        concurrency=config.play.concurrency,
        deadline=config.play.deadline,
    )
    suite = report.suite
    numbers = {"coverage": suite.scored / max(suite.issued, 1)}
    if suite.score is not None:
        numbers |= {"score": suite.score.mean, "low": suite.score.low, "high": suite.score.high}
    if suite.success is not None:
        numbers |= {"success": suite.success.mean}
    if suite.partial is not None:  # of the episodes that have a score: ``coverage`` says how many
        means = {"score": suite.partial.score, "success": suite.partial.success}
        numbers |= {f"partial_{name}": mean.mean for name, mean in means.items() if mean is not None}
    return numbers
