"""``palestra compare``: is one run better than another?"""

from collections.abc import Callable
from pathlib import Path

import typer

from palestra.encoding import encode_json
from palestra.errors import UsageError
from palestra.evaluation import EpisodeScore, compare, comparison_text, read_episodes, success_scores, task_scores
from palestra.statistics import Score, score_bounds
from palestra.terminal import terminal_safe

__all__ = ["compare_command"]


def compare_command(
    first: Path = typer.Argument(..., help="A run folder."),
    second: Path = typer.Argument(..., help="Another run folder, over the same tasks."),
    success: bool = typer.Option(False, "--success", help="Compare the share of solved tasks instead of the reward."),
    as_json: bool = typer.Option(False, "--json", help="Print the comparison as JSON."),
) -> None:
    """Compare two runs task by task: the difference, its interval and p-value, and the smallest detectable difference."""
    measure = success_scores if success else task_scores
    ours, theirs = (_scored(run, measure) for run in (first, second))
    result = compare(ours, theirs, bounds=score_bounds([*ours, *theirs]))
    text = terminal_safe(comparison_text(result, str(first), str(second)))
    typer.echo(encode_json(result).decode() if as_json else text)


def _scored(run: Path, measure: Callable[[list[EpisodeScore]], list[Score]]) -> list[Score]:
    """The scores of ``run``; ``UsageError`` if it has none."""
    episodes = read_episodes(run)
    if not episodes:
        raise UsageError(f"{run} has no finished episode yet: repeat the command of that run to play them")
    failed = sum(episode.reward is None for episode in episodes)
    if failed == len(episodes):
        raise UsageError(
            f"{run} has no scored episode ({failed} of {len(episodes)} failed, the first with {episodes[0].cause}): "
            f"correct the cause and repeat the command of that run"
        )
    scores = measure(episodes)
    if not scores:
        raise UsageError(f"{run} does not say which episodes were solved: leave out --success to compare the rewards")
    return scores
