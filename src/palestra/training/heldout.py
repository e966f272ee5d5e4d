"""Held-out evaluation during a run: the same tasks every time, each evaluation in a folder of its own.

The score is the environment's own: neither ``play.grader`` nor ``play.group_reward`` changes it.

::

    run/evaluations/step-00000008/   what ``palestra eval`` writes, with the weights after step 8
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from palestra.core import Policy
from palestra.durable import Inside
from palestra.evaluation import evaluate_async
from palestra.recipes.play import EvaluationSettings, PlaySettings
from palestra.training.tasks import held_out_seed

__all__ = ["EVALUATIONS", "BestEvaluation", "HeldOut"]

EVALUATIONS = "evaluations"


class BestEvaluation(msgspec.Struct, frozen=True):
    """The best evaluation of a run so far."""

    best: float | None = None
    best_step: int = -1
    """How many steps had been made then; -1 before the first evaluation."""
    worse: int = 0
    """How many evaluations since then were not better."""
    metric: str = ""
    temperature: float = 0.0
    """What was compared: ``evaluation.metric`` at ``evaluation.temperature``."""

    def under(self, settings: EvaluationSettings | None) -> "BestEvaluation":
        """The progress of a run that continues with ``settings``: none if they make numbers that cannot be compared."""
        if settings is None or (self.metric, self.temperature) == (settings.metric, settings.temperature):
            return self
        return BestEvaluation(metric=settings.metric, temperature=settings.temperature)

    def after(self, done: int, value: float | None) -> "BestEvaluation":
        """The progress after an evaluation at step ``done``. One without a score says nothing."""
        if value is None:
            return self
        better = self.best is None or value > self.best
        if better:
            return msgspec.structs.replace(self, best=value, best_step=done, worse=0)
        return msgspec.structs.replace(self, worse=self.worse + 1)


class HeldOut:
    """The evaluations of a run and the best of them. Without ``settings`` nothing is evaluated."""

    def __init__(
        self,
        settings: EvaluationSettings | None,
        envs: Sequence[str],
        seed: int,
        play: PlaySettings,
        folder: Path,
        say: Callable[[str], None],
    ) -> None:
        """``envs`` and ``seed`` are those of the run; ``say`` is called with notes for the user."""
        self._settings = settings
        self._envs = envs
        self._seed = held_out_seed(seed)
        self._play = play
        self._folder = folder
        self._say = say
        self.progress = BestEvaluation().under(settings)
        self._said_why = False

    async def evaluate(self, policy: Policy, done: int) -> dict[str, float]:
        """Play the held-out tasks after ``done`` steps, compare the result with the best one so far, and return its metrics."""
        assert self._settings is not None
        scores = await self.scores(self._settings, policy, done)
        self.progress = self.progress.after(done, scores.get(self._settings.metric))
        return {f"evaluation/{name}": value for name, value in scores.items()}

    def say_scores(self, metrics: Mapping[str, float]) -> None:
        """Say what was measured before the first step."""
        scores = [f"{name.partition('/')[2]} {value:.3f}" for name, value in metrics.items() if not name.endswith("coverage")]
        self._say(f"before the first step: {', '.join(scores) or 'no episode was scored'}")

    def is_best(self, done: int) -> bool:
        """Whether the checkpoint after ``done`` steps is to be kept as the best one."""
        return self._settings is not None and self._settings.keep_best and self.progress.best_step == done

    def gave_up(self) -> bool:
        """Whether the last evaluations were no better than an earlier one, so that the run ends. Says so once."""
        patience = self._settings.patience if self._settings is not None else None
        if patience is None or self.progress.worse < patience:
            return False
        if not self._said_why:
            best = f"{self.progress.best:.3f} after step {self.progress.best_step}"
            self._say(f"the run ends early: {self.progress.worse} evaluations in a row were not better than {best}")
        self._said_why = True
        return True

    def resume(self, saved: BestEvaluation) -> None:
        """Continue after the progress that a checkpoint holds."""
        self.progress = saved.under(self._settings)
        if self.progress is not saved and saved.best is not None:
            self._say("evaluation.metric or evaluation.temperature has changed: the best checkpoint is chosen anew")

    async def scores(self, settings: EvaluationSettings, policy: Policy, done: int) -> Mapping[str, float]:
        """Play the held-out tasks and return the score, its interval and the coverage."""
        report = await evaluate_async(
            list(settings.envs or self._envs),
            policy,
            n=settings.n,
            out=(Inside(self._folder) / EVALUATIONS / f"step-{done:08d}").checked(),
            seed=self._seed,
            concurrency=self._play.concurrency,
            deadline=self._play.deadline,
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
