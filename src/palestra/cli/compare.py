"""``palestra compare``: is one run better than another?"""

from pathlib import Path

import typer

from palestra.cli.results import json_option, show
from palestra.evaluation import compare_runs, comparison_text
from palestra.foundation.terminal import terminal_safe

__all__ = ["compare_command"]


def compare_command(
    first: Path = typer.Argument(..., help="A run folder."),
    second: Path = typer.Argument(..., help="Another run folder, over the same tasks."),
    success: bool = typer.Option(False, "--success", help="Compare the share of solved tasks instead of the reward."),
    as_json: bool = json_option("Print the comparison as JSON."),
) -> None:
    """Compare two runs task by task: the difference, its interval and p-value, and the smallest detectable difference.

    If episodes that were asked for have no score in a run, the command prints the range of the difference instead.
    """
    result = compare_runs(first, second, success=success)
    show(as_json, result, terminal_safe(comparison_text(result, str(first), str(second))))
