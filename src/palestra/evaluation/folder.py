"""A run folder: what was to be done, what has been done, and the report on it.

::

    config.json          what was asked for, with the hash of the panel of tasks and the versions that ran it
    trajectories.jsonl   one line per finished episode, written as it ends
    vocabulary.json      the text of every token id, where the policy samples tokens
    spending.log         one line per call of the policy, where there is a budget
    report.json  .md  .html

The same command on the same folder goes on where it was: the trajectories say which episodes are done, each exactly once. A
different command on it is refused.
"""

import os
from pathlib import Path

import msgspec

from palestra.encoding import decode_json, encode_json
from palestra.errors import UsageError
from palestra.evaluation.rendering import report_html, report_markdown
from palestra.evaluation.report import Episode, Report, episode_of
from palestra.rollout import read_trajectories

__all__ = ["TRAJECTORIES", "EvaluationConfig", "RunFolder", "read_config", "read_episodes", "read_report", "write_whole"]

TRAJECTORIES = "trajectories.jsonl"
CONFIG = "config.json"
REPORT = "report.json"


class EvaluationConfig(msgspec.Struct, frozen=True):
    """What was asked for."""

    policy: str
    envs: tuple[str, ...]
    tasks: int
    repeats: int
    seed: int
    max_turns: int | None
    panel: str
    """Hash of the tasks, in order."""
    about: dict[str, str]
    """What else tells this policy from others."""
    versions: dict[str, str]
    """Of what ran it. Noted, not compared."""
    environments: dict[str, str] = {}
    """Environment → fingerprint of its source. Noted, not compared; ``palestra regrade`` says whether it is still the same."""


class RunFolder:
    """The folder of one evaluation, begun or to be continued."""

    def __init__(self, path: str | Path, config: EvaluationConfig) -> None:
        self.path = Path(path)
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / CONFIG
        if file.exists():
            _check_same(self.path, decode_json(file.read_bytes(), EvaluationConfig), config)
        elif self.trajectories.exists():
            raise UsageError(f"{self.path} holds trajectories of something else (no {CONFIG}): name another folder")
        else:
            write_whole(file, msgspec.json.format(encode_json(config), indent=2))

    @property
    def trajectories(self) -> Path:
        """Where finished episodes are."""
        return self.path / TRAJECTORIES

    def episodes(self) -> list[Episode]:
        """What has been played so far."""
        return read_episodes(self.path) if self.trajectories.exists() else []

    def write_report(self, report: Report) -> None:
        """Write the report in its three forms."""
        write_whole(self.path / REPORT, msgspec.json.format(encode_json(report), indent=2))
        write_whole(self.path / "report.md", report_markdown(report).encode())
        write_whole(self.path / "report.html", report_html(report).encode())


def read_config(path: str | Path) -> EvaluationConfig:
    """What was asked for in a run folder."""
    file = Path(path) / CONFIG
    if not file.exists():
        raise UsageError(f"{path} is not the folder of an evaluation: there is no {CONFIG} in it")
    return decode_json(file.read_bytes(), EvaluationConfig)


def read_episodes(path: str | Path) -> list[Episode]:
    """The finished episodes of a run folder, reduced one at a time."""
    file = Path(path) / TRAJECTORIES
    if not file.exists():
        raise UsageError(f"{path} is not a run folder: there is no {TRAJECTORIES} in it")
    return [episode_of(trajectory) for trajectory in read_trajectories(file)]


def read_report(path: str | Path) -> Report:
    """The report of a run folder."""
    file = Path(path) / REPORT
    if not file.exists():
        raise UsageError(f"{path} has no {REPORT}: the evaluation has not ended; run it again to go on")
    return decode_json(file.read_bytes(), Report)


def _check_same(path: Path, old: EvaluationConfig, new: EvaluationConfig) -> None:
    for name in ("policy", "envs", "tasks", "repeats", "seed", "max_turns", "panel", "about"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            raise UsageError(f"{path} holds an evaluation with {name} {before}, this one has {now}: name another folder")


def write_whole(file: Path, data: bytes) -> None:
    """All of it or nothing, whenever the process ends."""
    draft = file.with_name(f".{file.name}.part")
    with open(draft, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    draft.replace(file)
