"""Trajectories → report: scores with error bars that mean what they say."""

from palestra.evaluation.comparison import Comparison, FamilyComparison, compare
from palestra.evaluation.rendering import comparison_text, report_html, report_markdown
from palestra.evaluation.report import Report, Section, episode_of, report_on, success_scores, task_scores
from palestra.evaluation.statistics import Distribution, Estimate, Score, distribution, mean_interval, pass_all_k, pass_at_k

__all__ = [
    "Comparison",
    "Distribution",
    "Estimate",
    "FamilyComparison",
    "Report",
    "Score",
    "Section",
    "compare",
    "comparison_text",
    "distribution",
    "episode_of",
    "mean_interval",
    "pass_all_k",
    "pass_at_k",
    "report_html",
    "report_markdown",
    "report_on",
    "success_scores",
    "task_scores",
]
