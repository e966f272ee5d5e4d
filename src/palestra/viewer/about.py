"""What the pages show about a run as a whole: its kind, model, settings and date, and its scores with intervals.

Kind, model and settings come from the run's ``config.json``. Any command may have written it, and a stranger may have changed
it, so this module takes it as plain data of any shape: it shortens long values, and it ignores a file that is missing, is not
JSON, or is nested too deeply.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from palestra.durable import Inside
from palestra.foundation.encoding import encode_json
from palestra.foundation.statistics import Estimate, Score, TaskMeans, mean_interval, score_bounds
from palestra.registry import family_of
from palestra.trajectory import StopReason
from palestra.viewer.summary import Columns

__all__ = ["RunAbout", "RunScores", "read_about", "scores_of"]

_LARGEST_CONFIG = 1 << 20
_LONGEST_VALUE = 200
_LARGEST_SCORE = 1e100
"""Scores beyond this have no interval: the sum of their squares would overflow."""
_MOST_SETTINGS = 120
_OMITTED = ("run", "policy", "environments", "versions", "asked", "score_ranges")
"""Keys that the page shows elsewhere, or that tell a reader nothing."""


class RunAbout(msgspec.Struct, frozen=True):
    """A run without its episodes."""

    kind: str = ""
    """``evaluation``, ``rollout``, ``training``, …; empty if the folder has no ``config.json``."""
    model: str = ""
    """The policy, or the model that was trained."""
    settings: dict[str, str] = {}
    """Key in ``config.json``, with dots between the levels → value."""
    date: str = ""
    """When the run's newest file was last written, as ISO 8601 in UTC."""
    report: bool = False
    """Whether the folder has a ``report.html``."""
    asked: int = 0
    """Episodes that an evaluation was asked for; 0 if the folder does not say so."""


class RunScores(msgspec.Struct, frozen=True):
    """Mean reward and share of solved episodes, with their intervals; ``None`` where no episode has one."""

    score: Estimate | None = None
    success: Estimate | None = None
    envs: dict[str, Estimate] = {}
    """Environment → mean reward."""
    asked: int = 0
    """Episodes that the run was asked for, if some of them have no score. There are no intervals then."""


def read_about(config: Inside | None, results: Path | Inside | None, *, report: bool) -> RunAbout:
    """Return what ``config`` (a ``config.json``, or ``None``) and the date of the file ``results`` tell."""
    try:
        settings = _config(config)
        shown = {key: _short(value) for key, value in _flat(settings) if key.partition(".")[0] not in _OMITTED}
    except RecursionError:
        settings, shown = {}, {}
    date = "" if results is None else datetime.fromtimestamp(results.stat().st_mtime, UTC).isoformat(timespec="seconds")
    return RunAbout(
        _text(settings.get("run")), _model(settings), dict(list(shown.items())[:_MOST_SETTINGS]), date, report, _asked(settings)
    )


def _asked(config: dict[str, Any]) -> int:
    tasks, size = config.get("asked"), config.get("group_size")
    if not isinstance(tasks, dict) or type(size) is not int or not all(type(count) is int for count in tasks.values()):
        return 0
    return max(0, size * sum(tasks.values()))


def _config(file: Inside | None) -> dict[str, Any]:
    if file is None or file.stat().st_size > _LARGEST_CONFIG:
        return {}
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def _model(config: dict[str, Any]) -> str:
    model = config.get("model")
    if isinstance(model, dict):
        model = model.get("path")
    return _text(model) or _text(config.get("policy"))


def _flat(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif value not in (None, "", []):
            yield f"{prefix}{key}", value


def _text(value: object) -> str:
    return _short(value) if isinstance(value, str) else ""


def _short(value: Any) -> str:
    items = value if isinstance(value, list) else [value]
    text = ", ".join(item if isinstance(item, str) else encode_json(item).decode() for item in items)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


# --------------------------------------------------------------------------------------------------------------- scores


def scores_of(columns: Columns, asked: int = 0) -> RunScores:
    """Return the scores of all episodes. The rule is that of a report: tasks are the unit, families count the same.

    If fewer episodes have a score than the ``asked`` ones, the mean of those is not that of the run and has no interval.
    """
    rows = [row for row, reward in enumerate(columns.reward) if reward is not None and not _is_budget(columns, row)]
    if len({(columns.group[row], columns.member[row]) for row in rows}) < asked:
        return RunScores(asked=asked)
    rewards = [(row, columns.reward[row]) for row in rows]
    success = columns.judged()
    by_env: dict[int, list[Score]] = {}
    scores = _scores(columns, rewards)
    for (row, _), score in zip(rewards, scores, strict=True):
        by_env.setdefault(columns.env.codes[row], []).append(score)
    return RunScores(
        _estimate(scores),
        _estimate(_scores(columns, [(row, success[row]) for row in rows if success[row] is not None])),
        {columns.env.values[env]: estimate for env, env_scores in by_env.items() if (estimate := _estimate(env_scores))},
    )


def _is_budget(columns: Columns, row: int) -> bool:
    return columns.stop.values[columns.stop.codes[row]] == StopReason.BUDGET.value


def _scores(columns: Columns, values: list[tuple[int, Any]]) -> list[Score]:
    paths = [(family_of(env), env) for env in columns.env.values]
    env, task, player = columns.env.codes, columns.task.codes, columns.player.codes
    return [Score(paths[env[row]], (task[row], player[row]), float(value)) for row, value in values]


def _estimate(scores: list[Score]) -> Estimate | None:
    if not scores or not all(abs(score.value) <= _LARGEST_SCORE for score in scores):
        return None
    return mean_interval(TaskMeans.of(scores), bounds=score_bounds(scores))
