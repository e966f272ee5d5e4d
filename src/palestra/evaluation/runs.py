"""Two run folders compared: which tasks they share, and whether each has played what it was asked for."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from palestra.durable import CONFIG, Inside
from palestra.errors import SchemaError, UsageError
from palestra.evaluation.asked import Asked
from palestra.evaluation.comparison import Comparison, PartialComparison, compare, compare_partial
from palestra.evaluation.folder import EvaluationConfig, read_config, read_episodes
from palestra.evaluation.report import EpisodeScore, judged, missing_scores, success_scores, task_scores
from palestra.foundation.statistics import MissingScore, Score, score_bounds
from palestra.registry import family_of

__all__ = ["compare_runs"]


class _Run(NamedTuple):
    folder: Path
    episodes: list[EpisodeScore]
    config: EvaluationConfig | None
    """``None`` if the folder does not say what was asked for: it was imported, or a rollout wrote it."""


def compare_runs(first: str | Path, second: str | Path, *, success: bool = False) -> Comparison | PartialComparison:
    """Compare the runs in two folders, task by task.

    If one of them is an evaluation of which episodes are missing, the result is a ``PartialComparison``: it has no p-value.

    Args:
        first: A run folder.
        second: Another run folder, over the same tasks.
        success: Compare the share of solved tasks instead of the reward.

    Raises:
        UsageError: A folder has no score, or the two have no scored task in common.
    """
    runs = _run(Path(first)), _run(Path(second))
    measure = success_scores if success else task_scores
    ours, theirs = (_scored(run, measure) for run in runs)
    absent = [_missing(run, runs, success=success) for run in runs]
    if any(absent):
        return compare_partial(ours, theirs, *absent)
    return compare(ours, theirs, bounds=score_bounds([*ours, *theirs]))


def _run(folder: Path) -> _Run:
    file = Inside(folder) / CONFIG
    kind: Any = None
    if file.exists():
        try:
            kind = msgspec.json.decode(file.read_bytes(), type=dict[str, Any]).get("run")
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SchemaError(f"{file} is damaged: {error}") from None
    if kind == "training":
        raise UsageError(
            f"{folder} is a training run, and compare is for evaluations: draw its curves beside those of others with "
            f"palestra plot {folder} OTHER --by seed, or compare the evaluations below {folder / 'evaluations'}"
        )
    return _Run(folder, read_episodes(folder), read_config(folder) if kind in ("evaluation", "regrading") else None)


def _scored(run: _Run, measure: Callable[[list[EpisodeScore]], list[Score]]) -> list[Score]:
    """The scores of ``run``; ``UsageError`` if it has none."""
    episodes = run.episodes
    if not episodes:
        raise UsageError(f"{run.folder} has no finished episode yet: repeat the command of that run to play them")
    failed = [episode for episode in episodes if episode.reward is None]
    if len(failed) == len(episodes):
        cause = next((episode.cause for episode in failed if episode.cause), "the budget")
        raise UsageError(
            f"{run.folder} has no scored episode ({len(failed)} of {len(episodes)} failed, the first with {cause}): "
            f"correct the cause and repeat the command of that run"
        )
    scores = measure(episodes)
    if not scores:
        raise UsageError(f"{run.folder} does not say which episodes were solved: leave out --success to compare the rewards")
    return scores


def _missing(run: _Run, both: Sequence[_Run], *, success: bool) -> list[MissingScore]:
    """The episodes that ``run`` was asked for and that have no score."""
    if run.config is None:
        return [
            MissingScore((family_of(episode.env), episode.env), episode.task, (0.0, 1.0) if success else None)
            for episode in run.episodes
            if episode.reward is None
        ]
    # A task that this run has not reached may be known from the other one: the same panel has the same task in every group.
    panels = [other for other in both if other.config is not None and other.config.panel == run.config.panel]
    tasks = {episode.group: episode.task for other in panels for episode in other.episodes}
    config = run.config
    asked = Asked.recorded(config.asked, config.group_size, config.score_ranges, tasks)
    missing = missing_scores(run.episodes, asked)
    if not success:
        return missing
    scored = [episode for episode in judged(run.episodes) if episode.reward is not None]
    silent = {episode.env for episode in scored} - {episode.env for episode in scored if episode.success is not None}
    return [score._replace(bounds=(0.0, 1.0)) for score in missing if score.path[-1] not in silent]
