"""Trajectories → report: scores with error bars that mean what they say."""

from palestra.evaluation.asked import Asked
from palestra.evaluation.budget import Budget, parse_budget
from palestra.evaluation.comparison import Comparison, FamilyComparison, PartialComparison, compare
from palestra.evaluation.folder import read_episodes, read_report
from palestra.evaluation.regrade import Regrading, regrade, regrade_async
from palestra.evaluation.rendering import SHOWN_CAUSES, comparison_text, report_html, report_markdown
from palestra.evaluation.report import (
    EpisodeScore,
    PartialScores,
    Report,
    Section,
    Spending,
    episode_of,
    report_on,
    success_scores,
    task_scores,
)
from palestra.evaluation.run import EvaluationOptions, Progress, evaluate, evaluate_async
from palestra.evaluation.runs import compare_runs
from palestra.foundation.statistics import (
    Distribution,
    Estimate,
    PartialMean,
    Score,
    distribution,
    mean_interval,
    pass_all_k,
    pass_at_k,
)

__all__ = [
    "SHOWN_CAUSES",
    "Asked",
    "Budget",
    "Comparison",
    "Distribution",
    "EpisodeScore",
    "Estimate",
    "EvaluationOptions",
    "FamilyComparison",
    "PartialComparison",
    "PartialMean",
    "PartialScores",
    "Progress",
    "Regrading",
    "Report",
    "Score",
    "Section",
    "Spending",
    "compare",
    "compare_runs",
    "comparison_text",
    "distribution",
    "episode_of",
    "evaluate",
    "evaluate_async",
    "mean_interval",
    "parse_budget",
    "pass_all_k",
    "pass_at_k",
    "read_episodes",
    "read_report",
    "regrade",
    "regrade_async",
    "report_html",
    "report_markdown",
    "report_on",
    "success_scores",
    "task_scores",
]
