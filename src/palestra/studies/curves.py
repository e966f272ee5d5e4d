"""The curves of training: their figures over steps and over seconds, and when each run reaches a score."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from palestra.durable import write_whole
from palestra.plots.curves import Course, learning_curves
from palestra.studies.markdown import runs_by_arm, seed_list, table
from palestra.studies.results import RunResult
from palestra.studies.study import Study

__all__ = ["reached_table", "seconds_figure", "step_caption", "step_figure"]

_POINTS = 100
"""Points of a curve in a figure."""


def step_figure(folder: Path, study: Study, results: Sequence[RunResult], environment: str) -> Path | None:
    """Every run over its steps, slightly smoothed; arms by colour, with the mean and the band of the seeds."""
    runs = [run for run in results if run.environment == environment]
    panels: dict[str, dict[str, list[Course]]] = {}
    for curve in study.curves:
        for run in runs:
            course = _course(run.curves.get(curve, []))
            if len(course.places):
                panels.setdefault(curve, {}).setdefault(run.arm, []).append(course)
    if not panels:
        return None
    path = folder / f"{runs[0].cell.place}.svg"
    write_whole(path, learning_curves(panels).encode())
    return path


def step_caption(environment: str, study: Study) -> str:
    """The caption of the figure over steps."""
    return f"Curves of {environment} by step: {', '.join(study.curves)}"


def seconds_figure(folder: Path, study: Study, results: Sequence[RunResult], environment: str, base: Path) -> str:
    """A figure of the curve that the study compares by time, over the seconds of training, if the study names one."""
    curve = study.equal_seconds or (study.measure if study.reach is not None else "")
    runs = [run for run in results if run.environment == environment]
    courses: dict[str, list[Course]] = {}
    for run in runs:
        course = _course(run.curves.get(curve, []), np.cumsum(run.made.step_seconds).tolist())
        if len(course.places):
            courses.setdefault(run.arm, []).append(course)
    if not courses:
        return ""
    path = folder / f"{runs[0].cell.place}-seconds.svg"
    write_whole(path, learning_curves({curve: courses}, "seconds").encode())
    return f"![{curve} of {environment} by seconds of training]({os.path.relpath(path, base)})"


def reached_table(study: Study, results: Sequence[RunResult]) -> str:
    """After how many steps and seconds of training each run first reaches the score that the study names."""
    if study.reach is None:
        return ""
    rows = []
    for name, arm, runs in runs_by_arm(study, results):
        steps = [_steps_until(run, study.measure, study.reach) for run in runs]
        seconds = [None if at is None else sum(run.made.step_seconds[:at]) for run, at in zip(runs, steps, strict=True)]
        shown = [" · ".join("never" if value is None else f"{value:.0f}" for value in values) for values in (steps, seconds)]
        rows.append([name, arm, *shown, seed_list(runs)])
    head = ["environment", "arm", f"steps until {study.measure} {study.reach:g}", "seconds", "seeds"]
    return table(head, rows)


def _steps_until(run: RunResult, measure: str, score: float) -> int | None:
    """The number of steps after which the smoothed curve first reaches ``score``."""
    points = [(step, value) for step, value in enumerate(run.curves.get(measure, []), 1) if value is not None]
    if not points:
        return None
    steps, values = zip(*points, strict=True)
    return next((step for step, value in zip(steps, _smooth(values), strict=True) if value >= score), None)


def _course(curve: Sequence[float | None], positions: Sequence[float] | None = None) -> Course:
    """Some of the steps that have a value, slightly smoothed if most have one. ``positions`` are the steps by default."""
    steps = range(len(curve)) if positions is None else positions
    points = [(position, value) for position, value in zip(steps, curve, strict=False) if value is not None]
    where, values = (np.array(column, dtype=np.float64) for column in (zip(*points, strict=True) if points else ((), ())))
    if len(points) > len(curve) / 2:
        values = _smooth(values)
    return Course(*(array[:: max(1, len(points) // _POINTS)] for array in (where, values)))


def _smooth(values: npt.ArrayLike, window: int = 5) -> npt.NDArray[np.float64]:
    padded = np.pad(np.asarray(values, dtype=np.float64), (window - 1, 0), mode="edge")
    return np.convolve(padded, np.ones(window) / window, mode="valid")
