"""``palestra compare``: is one run better than another?"""

from pathlib import Path

import typer

from palestra.encoding import encode_json
from palestra.evaluation import compare, comparison_text, read_episodes, score_bounds, success_scores, task_scores

__all__ = ["compare_command"]


def compare_command(
    first: Path = typer.Argument(..., help="A run folder."),
    second: Path = typer.Argument(..., help="Another, over the same tasks."),
    success: bool = typer.Option(False, "--success", help="Compare the share of solved tasks instead of the reward."),
    as_json: bool = typer.Option(False, "--json", help="The comparison as JSON."),
) -> None:
    """Compare two runs task by task: first minus second, with interval, p-value and the smallest difference they could show."""
    measure = success_scores if success else task_scores
    ours, theirs = measure(read_episodes(first)), measure(read_episodes(second))
    result = compare(ours, theirs, bounds=score_bounds([*ours, *theirs]))
    typer.echo(encode_json(result).decode() if as_json else comparison_text(result))
