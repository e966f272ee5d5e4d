"""The tables and figures of a study, made from its results alone, between two marks of a Markdown page::

    <!-- study: learning/guess -->
    … replaced …
    <!-- end of study -->

The path is relative to the page. A mean is never printed without the values of its seeds.
"""

import itertools
import os
import re
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from palestra.durable import write_whole
from palestra.errors import UsageError
from palestra.evaluation.comparison import compare
from palestra.plots.bands import Band, band_curves
from palestra.plots.curves import Course, learning_curves
from palestra.statistics import Estimate, Score, mean_interval, score_bounds
from palestra.studies.budgets import BudgetScore, budget_figure, spent
from palestra.studies.ranking import Scores, profile, rank_arms, scores_of
from palestra.studies.results import RunResult, read_played, read_results
from palestra.studies.study import ArmPair, Cell, Study, load_study

__all__ = ["fill_page", "study_section"]

_SECTION = re.compile(r"(<!-- study: (?P<path>\S+) -->\n).*?(<!-- end of study -->)", re.DOTALL)
_POINTS = 100
"""Points of a curve in a figure."""
_RANKED_ARMS = 3
"""The smallest number of arms for which ranks say more than pairs."""
_RANKED_ENVIRONMENTS = 2
"""Ranks in one environment only repeat its table."""
_ENOUGH_SEEDS = 3
"""The smallest number of seeds for an interval over seeds."""
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

    def fill(found: re.Match[str]) -> str:
        folder = page.parent / found["path"]
        folders.append(folder)
        return f"{found[1]}\n{study_section(folder, page.parent)}\n\n{found[3]}"

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
    figures = {name: _figure(folder, study, results, name) for name in study.environments}
    parts = [
        _optimum(study),
        _players(folder, study),
        _summary(study, results),
        _every_run(study, results),
        "\n".join(f"- {_pair(study, results, pair)}" for pair in study.compare),
        _reached(study, results),
        _equal_seconds(study, results),
        _ranks(study, results, folder, base),
        *(f"![{_caption(name, study)}]({os.path.relpath(path, base)})" for name, path in figures.items() if path),
        *(_by_seconds(folder, study, results, name, base) for name in study.environments),
        *(_budgets(folder, study, results, name, base) for name in study.environments),
        _provenance(study, results),
    ]
    return "\n\n".join(part for part in parts if part)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _optimum(study: Study) -> str:
    known = {name: one.optimum for name, one in study.environments.items() if one.optimum}
    parts = [f"{name}: {', '.join(f'{key} {value:.2f}' for key, value in numbers.items())}" for name, numbers in known.items()]
    return f"A perfect player: {'; '.join(parts)}." if parts else ""


def _players(folder: Path, study: Study) -> str:
    rows = []
    for name in study.environments:
        for player, outcomes in read_played(folder, name, study.players).items():
            rows.append([name, player, _interval(range(len(outcomes[study.measure])), outcomes[study.measure])])
    return _table(["environment", "player", study.measure], rows) if rows else ""


def _summary(study: Study, results: Sequence[RunResult]) -> str:
    """One row per environment and arm. Each cell shows every seed; a mean stands before its seeds."""
    head = ["environment", "arm", f"{study.measure} before", "after", "after − before", "turns after", "CPU seconds", "seeds"]
    rows = []
    for name, arm, runs in _by_arm(study, results):
        before = _by_seed([float(np.mean(one.before[study.measure])) for one in runs], "{:.3f}")
        after = _by_seed([float(np.mean(one.after[study.measure])) for one in runs], "{:.3f}")
        turns = _by_seed([float(np.mean(one.after["turns"])) for one in runs], "{:.2f}")
        seconds = _by_seed([one.made.cpu_seconds for one in runs], "{:.0f}")
        rows.append([name, arm, before, after, _gain(runs, study.measure), turns, seconds, _seeds(runs)])
    return _table(head, rows)


def _by_arm(study: Study, results: Sequence[RunResult]) -> Iterator[tuple[str, str, list[RunResult]]]:
    """The runs of every environment and arm that has any."""
    for name in study.environments:
        for arm in study.arms:
            if runs := [one for one in results if (one.environment, one.arm) == (name, arm)]:
                yield name, arm, runs


def _seeds(runs: Sequence[RunResult]) -> str:
    return ", ".join(str(seed) for seed in dict.fromkeys(one.seed for one in runs))


def _by_seed(values: Sequence[float], form: str) -> str:
    shown = " · ".join(form.format(value) for value in values)
    return shown if len(values) == 1 else f"{form.format(float(np.mean(values)))} ({shown})"


def _gain(runs: Sequence[RunResult], measure: str) -> str:
    """After − before. All seeds play the same tasks, so each task counts once, with the mean of its seeds."""
    after, before = (
        [
            Score((), task, value)
            for one in runs
            for task, value in zip(one.asked or range(len(one.after[measure])), getattr(one, when)[measure], strict=True)
        ]
        for when in ("after", "before")
    )
    return _difference(after, before, score_bounds([*after, *before]))


def _every_run(study: Study, results: Sequence[RunResult]) -> str:
    """One row per run, with 95 % intervals over held-out tasks."""
    head = ["environment", "arm", "seed", f"{study.measure} before", f"{study.measure} after", "paired difference"]
    rows = []
    for one in results:
        before, after = one.before[study.measure], one.after[study.measure]
        tasks = one.asked or range(len(after))
        later, earlier = _scores(tasks, after), _scores(tasks, before)
        difference = _difference(later, earlier, score_bounds([*later, *earlier]))
        rows.append([one.environment, one.arm, str(one.seed), _interval(tasks, before), _interval(tasks, after), difference])
    return _table(head, rows)


def _pair(study: Study, results: Sequence[RunResult], pair: ArmPair) -> str:
    """``first − second`` after training: overall with its interval, and for every environment and seed.

    All seeds play the same tasks, so each task counts once, with the mean of its seeds. This interval says how well the runs
    are measured. The interval over seeds says how much other seeds may differ.
    """
    runs = {one.cell: one.after[pair.measure] for one in results}
    common = [
        (ours, theirs)
        for ours in runs
        for theirs in runs
        if (ours.arm, theirs.arm) == (pair.first, pair.second) and ours._replace(arm="") == theirs._replace(arm="")
    ]
    if not common:
        return f"{pair.first} − {pair.second}, {pair.measure}: no run of both with the same environment and seed."
    first, second = (
        [Score((cell.environment,), task, value) for cell in side for task, value in enumerate(runs[cell])]
        for side in zip(*common, strict=True)
    )
    bounds = score_bounds(score for values in runs.values() for score in _scores(range(len(values)), values))
    parts = [_difference(first, second, bounds)]
    environments = list(dict.fromkeys(ours.environment for ours, _ in common))
    for name in environments:
        ours, theirs = ([one for one in side if one.path[0] == name] for side in (first, second))
        whole = f"{_difference(ours, theirs, bounds)}, " if len(environments) > 1 else ""
        sides = zip(*(both for both in common if both[0].environment == name), strict=True)
        means = [[Score((), cell.seed, float(np.mean(runs[cell]))) for cell in side] for side in sides]
        parts.append(f"{name} {whole}by seed {_differences(means[0], means[1], bounds)}")
    return f"{pair.first} − {pair.second}, {pair.measure}: {'; '.join(parts)}"


def _differences(first: Sequence[Score], second: Sequence[Score], bounds: tuple[float, float]) -> str:
    """The difference of every seed, and the interval of their mean if there are enough seeds for one."""
    each = ", ".join(f"{ours.value - theirs.value:+.3f}" for ours, theirs in zip(first, second, strict=True))
    if len(first) < _ENOUGH_SEEDS:
        return each
    found = compare(first, second, bounds=bounds).difference
    return f"{each}, over seeds [{found.low:+.3f}, {found.high:+.3f}]"


def _difference(first: Sequence[Score], second: Sequence[Score], bounds: tuple[float, float]) -> str:
    found = compare(first, second, bounds=bounds).difference
    return f"{found.mean:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


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
        f"Ranks by {study.measure} over {len(scores)} environments, {ranking.seeds} seeds each:\n\n{_table(head, rows)}\n\n"
        f"![Performance profile: the share of runs that reach a {study.measure}]({os.path.relpath(path, base)})"
    )


def _profile_figure(folder: Path, study: Study, scores: Scores) -> Path:
    thresholds = np.linspace(0.0, 1.0, _THRESHOLDS)
    curves = {arm: Band(thresholds, *found) for arm, found in profile(scores, thresholds).items()}
    path = folder / _PROFILE
    write_whole(path, band_curves({"share of runs": (study.measure, curves)}, "performance profile").encode())
    return path


def _reached(study: Study, results: Sequence[RunResult]) -> str:
    """After how many steps and seconds of training each run first reaches the score that the study names."""
    if study.reach is None:
        return ""
    rows = []
    for name, arm, runs in _by_arm(study, results):
        steps = [_steps_until(one, study.measure, study.reach) for one in runs]
        seconds = [None if at is None else sum(one.made.step_seconds[:at]) for one, at in zip(runs, steps, strict=True)]
        shown = [" · ".join("never" if value is None else f"{value:.0f}" for value in values) for values in (steps, seconds)]
        rows.append([name, arm, *shown, _seeds(runs)])
    head = ["environment", "arm", f"steps until {study.measure} {study.reach:g}", "seconds", "seeds"]
    return _table(head, rows)


def _steps_until(run: RunResult, measure: str, score: float) -> int | None:
    """The number of steps after which the smoothed curve first reaches ``score``."""
    known = [(step, value) for step, value in enumerate(run.curves.get(measure, []), 1) if value is not None]
    if not known:
        return None
    steps, values = zip(*known, strict=True)
    return next((step for step, value in zip(steps, _smooth(values), strict=True) if value >= score), None)


def _equal_seconds(study: Study, results: Sequence[RunResult]) -> str:
    """What both arms of a pair had reached when the faster one had made all its steps, and the difference over seeds."""
    if not study.equal_seconds:
        return ""
    runs = {one.cell: one for one in results}
    rows, left_out = [], []
    for pair, name in itertools.product(study.compare, study.environments):
        reached: dict[int, tuple[float, float]] = {}
        for seed in study.seeds:
            first, second = (runs.get(Cell(name, arm, seed)) for arm in (pair.first, pair.second))
            values = _when_faster_ended(first, second, study.equal_seconds)
            if values is None:
                left_out.append(f"{pair.first} − {pair.second}, {name}, seed {seed}")
            else:
                reached[seed] = values
        if reached:
            ours, theirs = ([Score((), seed, both[side]) for seed, both in reached.items()] for side in (0, 1))
            shown = [_by_seed([one.value for one in side], "{:.3f}") for side in (ours, theirs)]
            difference = _difference(ours, theirs, score_bounds([*ours, *theirs]))
            rows.append([name, f"{pair.first} − {pair.second}", *shown, difference, ", ".join(map(str, reached))])
    head = ["environment", "pair", f"{study.equal_seconds} of the first when the faster one ended", "of the second"]
    parts = [_table([*head, "difference over seeds", "seeds"], rows)] if rows else []
    if left_out:
        parts.append(f"Left out, because a run has no {study.equal_seconds} by then: {'; '.join(left_out)}")
    return "\n\n".join(parts)


def _when_faster_ended(first: RunResult | None, second: RunResult | None, curve: str) -> tuple[float, float] | None:
    """The last values of the curve that both runs had when the faster one ended; ``None`` if a run or its value is missing."""
    if first is None or second is None:
        return None
    seconds = min(sum(one.made.step_seconds) for one in (first, second))
    ours, theirs = (_value_within(one, curve, seconds) for one in (first, second))
    return None if ours is None or theirs is None else (ours, theirs)


def _value_within(run: RunResult, curve: str, seconds: float) -> float | None:
    """The last value of the curve that the run had after ``seconds`` of training; ``None`` if it had none yet."""
    ends = np.cumsum(run.made.step_seconds)
    values = [value for value, end in zip(run.curves.get(curve, []), ends, strict=False) if end <= seconds + 1e-6]
    return next((value for value in reversed(values) if value is not None), None)


def _budgets(folder: Path, study: Study, results: Sequence[RunResult], environment: str, base: Path) -> str:
    """The scores against turns and samples as a table, and their figure, which is written into ``folder``."""
    runs = [one for one in results if one.environment == environment and one.budgets]
    found = spent(runs)
    if not found:
        return ""
    tables = [
        _table(
            [f"{environment}: {kind}", *map(str, next(iter(sides.values())))],
            [[side, *map(_budget_score, by_budget.values())] for side, by_budget in sides.items()],
        )
        for kind, sides in found.items()
    ]
    path = folder / f"{runs[0].cell.place}-budgets.svg"
    budget_figure(path, study.measure, found)
    caption = f"{study.measure} of {environment} by turns and by samples, before and after training"
    said = f"Mean {study.measure} over the tasks of the seeds {_seeds(runs)}, with other budgets at test time:"
    return "\n\n".join([said, *tables, f"![{caption}]({os.path.relpath(path, base)})"])


def _budget_score(found: BudgetScore) -> str:
    return f"{_estimated(found.estimate)} ({' · '.join(f'{value:.3f}' for value in found.by_seed)})"


def _figure(folder: Path, study: Study, results: Sequence[RunResult], environment: str) -> Path | None:
    """Every run over its steps, slightly smoothed; arms by colour, with the mean and the band of the seeds."""
    runs = [one for one in results if one.environment == environment]
    panels: dict[str, dict[str, list[Course]]] = {}
    for curve in study.curves:
        for one in runs:
            course = _course(one.curves.get(curve, []))
            if len(course.places):
                panels.setdefault(curve, {}).setdefault(one.arm, []).append(course)
    if not panels:
        return None
    path = folder / f"{runs[0].cell.place}.svg"
    write_whole(path, learning_curves(panels).encode())
    return path


def _caption(environment: str, study: Study) -> str:
    return f"Curves of {environment} by step: {', '.join(study.curves)}"


def _by_seconds(folder: Path, study: Study, results: Sequence[RunResult], environment: str, base: Path) -> str:
    """A figure of the curve that the study compares by time, over the seconds of training, if the study names one."""
    curve = study.equal_seconds or (study.measure if study.reach is not None else "")
    runs = [one for one in results if one.environment == environment]
    courses: dict[str, list[Course]] = {}
    for one in runs:
        course = _course(one.curves.get(curve, []), np.cumsum(one.made.step_seconds).tolist())
        if len(course.places):
            courses.setdefault(one.arm, []).append(course)
    if not courses:
        return ""
    path = folder / f"{runs[0].cell.place}-seconds.svg"
    write_whole(path, learning_curves({curve: courses}, "seconds").encode())
    return f"![{curve} of {environment} by seconds of training]({os.path.relpath(path, base)})"


def _course(curve: Sequence[float | None], places: Sequence[float] | None = None) -> Course:
    """Some of the steps that have a value, slightly smoothed if most have one. ``places`` are the steps by default."""
    steps = range(len(curve)) if places is None else places
    known = [(place, value) for place, value in zip(steps, curve, strict=False) if value is not None]
    where, values = (np.array(column, dtype=np.float64) for column in (zip(*known, strict=True) if known else ((), ())))
    if len(known) > len(curve) / 2:
        values = _smooth(values)
    return Course(*(array[:: max(1, len(known) // _POINTS)] for array in (where, values)))


def _smooth(values: npt.ArrayLike, window: int = 5) -> npt.NDArray[np.float64]:
    padded = np.pad(np.asarray(values, dtype=np.float64), (window - 1, 0), mode="edge")
    return np.convolve(padded, np.ones(window) / window, mode="valid")


def _provenance(study: Study, results: Sequence[RunResult]) -> str:
    def all_of(values: Sequence[str]) -> str:
        return ", ".join(dict.fromkeys(value for value in values if value)) or "unknown"

    made = [one.made for one in results]
    tasks = all_of([str(study.held_out_of(name)) for name in study.environments])
    parts = [
        f"Model: {all_of([one.model for one in results])}",
        f"held-out tasks: {tasks}",
        f"runs: {len(results)} of {len(list(study.cells()))}",
        f"machine: {all_of([one.machine for one in made])}",
        f"date: {all_of([one.date for one in made])}",
        f"commit: {all_of([one.commit for one in made])}",
    ]
    chosen = f" {study.chosen}" if study.chosen else ""
    return f"{'; '.join(parts)}.{chosen}"


def _scores(tasks: Sequence[Hashable], values: Sequence[float]) -> list[Score]:
    return [Score((), task, float(value)) for task, value in zip(tasks, values, strict=True)]


def _interval(tasks: Sequence[Hashable], values: Sequence[float]) -> str:
    scores = _scores(tasks, values)
    return _estimated(mean_interval(scores, bounds=score_bounds(scores)))


def _estimated(found: Estimate) -> str:
    return f"{found.mean:.3f} [{found.low:.3f}, {found.high:.3f}]"
