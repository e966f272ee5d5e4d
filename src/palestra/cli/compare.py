"""``palestra compare``: is one run better than another?"""

from pathlib import Path

import typer

from palestra.evaluation import compare_runs, comparison_text
from palestra.foundation.encoding import encode_json
from palestra.foundation.terminal import terminal_safe

__all__ = ["compare_command"]


def compare_command(
    first: Path = typer.Argument(..., help="A run folder."),
    second: Path = typer.Argument(..., help="Another run folder, over the same tasks."),
    success: bool = typer.Option(False, "--success", help="Compare the share of solved tasks instead of the reward."),
    as_json: bool = typer.Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare two runs task by task: the difference, its interval and p-value, and the smallest detectable difference.

    If episodes that were asked for have no score in a run, the command prints the range of the difference instead.
    """
    result = compare_runs(first, second, success=success)
    text = terminal_safe(comparison_text(result, str(first), str(second)))
    typer.echo(encode_json(result).decode() if as_json else text)
