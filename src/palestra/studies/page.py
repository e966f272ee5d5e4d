"""The tables and figures of a study, made from its results alone, between two marks of a Markdown page::

    <!-- study: learning/guess -->
    … replaced …
    <!-- end of study -->

The path is relative to the page. A mean is never printed without the values of its seeds.
"""

import os
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from palestra.durable import write_whole
from palestra.errors import UsageError
from palestra.foundation.statistics import Score, score_bounds
from palestra.plots.bands import Band, band_curves
from palestra.studies.budgets import BudgetScore, budget_figure, spent
from palestra.studies.curves import reached_table, seconds_figure, step_caption, step_figure
from palestra.studies.markdown import (
    by_seed,
    mean_with_interval,
    paired_difference,
    runs_by_arm,
    seed_list,
    table,
    task_scores,
    with_interval,
)
from palestra.studies.pairs import equal_seconds_table, pair_line
from palestra.studies.ranking import Scores, profile, rank_arms, scores_of
from palestra.studies.results import RunResult, read_played, read_results
from palestra.studies.study import Study, load_study

__all__ = ["fill_page", "study_section"]

_SECTION = re.compile(r"(<!-- study: (?P<path>\S+) -->\n).*?(<!-- end of study -->)", re.DOTALL)
_RANKED_ARMS = 3
"""The smallest number of arms for which ranks say more than pairs."""
_RANKED_ENVIRONMENTS = 2
"""Ranks in one environment only repeat its table."""
_PROFILE = "performance-profile.svg"
_THRESHOLDS = 21
"""Points of a performance profile, from 0 to 1."""


def fill_page(page: Path) -> list[Path]:
    """Write the tables of every study that ``page`` names between its marks, and the figures beside the studies.

    Returns:
        The folders of the studies.

    Raises:
        UsageError: The page has no marks, or names a folder that is not a study.
    """
    text = page.read_text(encoding="utf-8")
    folders: list[Path] = []

    def fill(match: re.Match[str]) -> str:
        folder = page.parent / match["path"]
        folders.append(folder)
        return f"{match[1]}\n{study_section(folder, page.parent)}\n\n{match[3]}"

    filled = _SECTION.sub(fill, text)
    if not folders:
        raise UsageError(
            f"{page} names no study: write <!-- study: FOLDER --> and <!-- end of study --> where its tables belong"
        )
    write_whole(page, filled.encode())
    return folders


def study_section(folder: Path, base: Path) -> str:
    """The tables of a study as Markdown, and its figures, which are written into ``folder``. Links are relative to ``base``."""
    study = load_study(folder)
    results = read_results(folder, study)
    if not results:
        return f"No run of this study has ended. To make them: `palestra study run {folder.name}`."
    figures = {name: step_figure(folder, study, results, name) for name in study.environments}
    parts = [
        _optimum(study),
        _players(folder, study),
        _summary(study, results),
        _every_run(study, results),
        "\n".join(f"- {pair_line(results, pair)}" for pair in study.compare),
        reached_table(study, results),
        equal_seconds_table(study, results),
        _ranks(study, results, folder, base),
        *(f"![{step_caption(name, study)}]({os.path.relpath(path, base)})" for name, path in figures.items() if path),
        *(seconds_figure(folder, study, results, name, base) for name in study.environments),
        *(_budgets(folder, study, results, name, base) for name in study.environments),
        _provenance(study, results),
    ]
    return "\n\n".join(part for part in parts if part)


def _optimum(study: Study) -> str:
    optima = {name: environment.optimum for name, environment in study.environments.items() if environment.optimum}
    parts = [f"{name}: {', '.join(f'{key} {value:.2f}' for key, value in numbers.items())}" for name, numbers in optima.items()]
    return f"A perfect player: {'; '.join(parts)}." if parts else ""


def _players(folder: Path, study: Study) -> str:
    rows = []
    for name in study.environments:
        for player, outcomes in read_played(folder, name, study.players).items():
            rows.append([name, player, mean_with_interval(range(len(outcomes[study.measure])), outcomes[study.measure])])
    return table(["environment", "player", study.measure], rows) if rows else ""


def _summary(study: Study, results: Sequence[RunResult]) -> str:
    """One row per environment and arm. Each cell shows every seed; a mean stands before its seeds."""
    head = ["environment", "arm", f"{study.measure} before", "after", "after − before", "turns after", "CPU seconds", "seeds"]
    rows = []
    for name, arm, runs in runs_by_arm(study, results):
        before = by_seed([float(np.mean(run.before[study.measure])) for run in runs], "{:.3f}")
        after = by_seed([float(np.mean(run.after[study.measure])) for run in runs], "{:.3f}")
        turns = by_seed([float(np.mean(run.after["turns"])) for run in runs], "{:.2f}")
        seconds = by_seed([run.made.cpu_seconds for run in runs], "{:.0f}")
        rows.append([name, arm, before, after, _gain(runs, study.measure), turns, seconds, seed_list(runs)])
    return table(head, rows)


def _gain(runs: Sequence[RunResult], measure: str) -> str:
    """After − before. All seeds play the same tasks, so each task counts once, with the mean of its seeds."""
    after, before = (
        [
            Score((), task, value)
            for run in runs
            for task, value in zip(run.asked or range(len(run.after[measure])), getattr(run, when)[measure], strict=True)
        ]
        for when in ("after", "before")
    )
    return paired_difference(after, before, score_bounds([*after, *before]))


def _every_run(study: Study, results: Sequence[RunResult]) -> str:
    """One row per run, with 95 % intervals over held-out tasks."""
    head = ["environment", "arm", "seed", f"{study.measure} before", f"{study.measure} after", "paired difference"]
    rows = []
    for result in results:
        before, after = result.before[study.measure], result.after[study.measure]
        tasks = result.asked or range(len(after))
        later, earlier = task_scores(tasks, after), task_scores(tasks, before)
        difference = paired_difference(later, earlier, score_bounds([*later, *earlier]))
        means = [mean_with_interval(tasks, values) for values in (before, after)]
        rows.append([result.environment, result.arm, str(result.seed), *means, difference])
    return table(head, rows)


def _ranks(study: Study, results: Sequence[RunResult], folder: Path, base: Path) -> str:
    """The table of ranks, and the performance profile, which is written into ``folder``."""
    enough = len(study.arms) >= _RANKED_ARMS and len(study.environments) >= _RANKED_ENVIRONMENTS and len(study.seeds) > 1
    if not enough or len(results) < len(list(study.cells())):
        return ""
    scores = scores_of(results, study.measure)
    ranking = rank_arms(scores)
    best = min(ranking.ranks, key=lambda arm: ranking.ranks[arm].value)
    head = ["arm", "mean rank", f"probability that {best} scores higher"]
    rows = [
        [arm, str(rank), "" if arm == best else str(ranking.improvement[best, arm])]
        for arm, rank in sorted(ranking.ranks.items(), key=lambda item: item[1].value)
    ]
    path = _profile_figure(folder, study, scores)
    return (
        f"Ranks by {study.measure} over {len(scores)} environments, {ranking.seeds} seeds each:\n\n{table(head, rows)}\n\n"
        f"![Performance profile: the share of runs that reach a {study.measure}]({os.path.relpath(path, base)})"
    )


def _profile_figure(folder: Path, study: Study, scores: Scores) -> Path:
    thresholds = np.linspace(0.0, 1.0, _THRESHOLDS)
    curves = {arm: Band(thresholds, *band) for arm, band in profile(scores, thresholds).items()}
    path = folder / _PROFILE
    write_whole(path, band_curves({"share of runs": (study.measure, curves)}, "performance profile").encode())
    return path


def _budgets(folder: Path, study: Study, results: Sequence[RunResult], environment: str, base: Path) -> str:
    """The scores against turns and samples as a table, and their figure, which is written into ``folder``."""
    runs = [result for result in results if result.environment == environment and result.budgets]
    by_kind = spent(runs)
    if not by_kind:
        return ""
    tables = [
        table(
            [f"{environment}: {kind}", *map(str, next(iter(sides.values())))],
            [[side, *map(_budget_score, by_budget.values())] for side, by_budget in sides.items()],
        )
        for kind, sides in by_kind.items()
    ]
    path = folder / f"{runs[0].cell.place}-budgets.svg"
    budget_figure(path, study.measure, by_kind)
    caption = f"{study.measure} of {environment} by turns and by samples, before and after training"
    head = f"Mean {study.measure} over the tasks of the seeds {seed_list(runs)}, with other budgets at test time:"
    return "\n\n".join([head, *tables, f"![{caption}]({os.path.relpath(path, base)})"])


def _budget_score(score: BudgetScore) -> str:
    return f"{with_interval(score.estimate)} ({' · '.join(f'{value:.3f}' for value in score.by_seed)})"


def _provenance(study: Study, results: Sequence[RunResult]) -> str:
    def all_of(values: Sequence[str]) -> str:
        return ", ".join(dict.fromkeys(value for value in values if value)) or "unknown"

    origins = [result.made for result in results]
    tasks = all_of([str(study.held_out_of(name)) for name in study.environments])
    parts = [
        f"Model: {all_of([result.model for result in results])}",
        f"held-out tasks: {tasks}",
        f"runs: {len(results)} of {len(list(study.cells()))}",
        f"machine: {all_of([origin.machine for origin in origins])}",
        f"date: {all_of([origin.date for origin in origins])}",
        f"commit: {all_of([origin.commit for origin in origins])}",
    ]
    resumed = [result.cell.name for result in results if result.made.resumed]
    resumes = (
        f" These runs were resumed, and their CPU seconds begin with the last resume: {', '.join(resumed)}." if resumed else ""
    )
    chosen = f" {study.chosen}" if study.chosen else ""
    return f"{'; '.join(parts)}.{resumes}{chosen}"
