"""Trajectories → report: scores with error bars that mean what they say."""

from palestra.evaluation.budget import Budget, parse_budget
from palestra.evaluation.comparison import Comparison, FamilyComparison, compare
from palestra.evaluation.folder import read_episodes, read_report
from palestra.evaluation.regrade import Regrading, regrade, regrade_async
from palestra.evaluation.rendering import SHOWN_CAUSES, comparison_text, report_html, report_markdown
from palestra.evaluation.report import EpisodeScore, Report, Section, episode_of, report_on, success_scores, task_scores
from palestra.evaluation.run import EvaluationOptions, Progress, evaluate, evaluate_async
from palestra.statistics import Distribution, Estimate, Score, distribution, mean_interval, pass_all_k, pass_at_k

__all__ = [
    "SHOWN_CAUSES",
    "Budget",
    "Comparison",
    "Distribution",
    "EpisodeScore",
    "Estimate",
    "EvaluationOptions",
    "FamilyComparison",
    "Progress",
    "Regrading",
    "Report",
    "Score",
    "Section",
    "compare",
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
