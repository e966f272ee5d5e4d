"""The run folder of an evaluation: its settings, its finished episodes, and the report on them.

::

    config.json          the settings, the hash of the panel of tasks, and the versions of the packages
    trajectories.jsonl   one line per finished episode, written as it ends
    failed.jsonl         records of failed episodes that a resumed run played again
    vocabulary.json      the text of every token id, if the policy samples tokens
    spending.log         one line per call of the policy, if there is a budget
    report.json  .md  .html

The same command on the same folder resumes the run: episodes in ``trajectories.jsonl`` are done, and failed ones are played
again. A command with other settings is refused.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from palestra.durable import CONFIG, Claim, Identity, Inside, claim, write_whole
from palestra.errors import SchemaError, UsageError
from palestra.evaluation.rendering import report_html, report_markdown
from palestra.evaluation.report import EpisodeScore, Report, episode_of
from palestra.foundation.encoding import decode_json, encode_json
from palestra.inference.rendering.vocabulary import VOCABULARY
from palestra.rollouts import read_trajectories
from palestra.rollouts.resuming import FAILED, TRAJECTORIES

__all__ = ["EvaluationConfig", "RunFolder", "read_config", "read_episodes", "read_report"]

REPORT = "report.json"
LEFT_BEHIND = (VOCABULARY, "spending.log", REPORT, "report.md", "report.html")
"""Files of an evaluation other than its trajectories."""
NOTED = ("versions", "environments", "asked", "score_ranges")
"""Fields of ``EvaluationConfig`` that a resumed evaluation does not compare."""


class EvaluationConfig(msgspec.Struct, frozen=True):
    """The settings of the evaluation."""

    policy: str
    envs: tuple[str, ...]
    tasks: int
    group_size: int
    seed: int
    max_turns: int | None
    panel: str
    """Hash of the tasks, in order, and of the data that they draw from; ``NAME@HASH`` of a named panel."""
    about: dict[str, str]
    """What else tells this policy from others, such as a temperature."""
    versions: dict[str, str]
    """Package → version, when the run began. Noted, not compared."""
    environments: dict[str, str] = {}
    """Environment → fingerprint of its source. Noted, not compared; ``palestra regrade`` reports changes."""
    wrappers: tuple[str, ...] = ()
    """The wrappers of every environment, innermost first."""
    tools: tuple[str, ...] = ()
    """The tools lent to every environment."""
    data: dict[str, str] = {}
    """Environment → hash of the data that its tasks draw from. A file that changes makes another evaluation."""
    asked: dict[str, int] = {}
    """Environment → number of its tasks. Noted, not compared: ``panel`` is."""
    score_ranges: dict[str, tuple[float, float]] = {}
    """Environment → bounds of an episode's score, where they are known. Noted, not compared."""


class RunFolder:
    """The folder of one evaluation, new or resumed. ``claimed`` makes one."""

    def __init__(self, claim: Claim) -> None:
        self.path = claim.folder
        self.inside = claim.inside
        self.resumed = claim.resumed
        """The folder holds episodes of this evaluation already."""
        if claim.replaced:  # another evaluation ended before its first episode
            for name in LEFT_BEHIND:
                (self.inside / name).unlink(missing_ok=True)

    @classmethod
    @contextmanager
    def claimed(cls, path: str | Path, config: EvaluationConfig, *, run: str = "evaluation") -> Iterator["RunFolder"]:
        """Lock the folder ``path`` for the evaluation ``config``; ``UsageError`` if it is in use or holds another run.

        Concurrency, deadline, retries and budget are not in ``config``: they may change when an evaluation is resumed.
        """
        with claim(
            path,
            Identity(
                run=run,
                config=config,
                noted=NOTED,
                results=(TRAJECTORIES, FAILED),
                others=LEFT_BEHIND,
            ),
        ) as held:
            yield cls(held)

    @property
    def trajectories(self) -> Inside:
        """The file with the finished episodes."""
        return self.inside / TRAJECTORIES

    def write_report(self, report: Report) -> None:
        """Write the report in its three forms."""
        write_whole(self.inside / REPORT, msgspec.json.format(encode_json(report), indent=2))
        write_whole(self.inside / "report.md", report_markdown(report).encode())
        write_whole(self.inside / "report.html", report_html(report).encode())


def read_config(path: str | Path) -> EvaluationConfig:
    """The settings of the evaluation in a run folder."""
    file = Inside(Path(path)) / CONFIG
    if not file.exists():
        raise UsageError(f"{path} is not the folder of an evaluation: there is no {CONFIG} in it")
    config = decode_json(file.read_bytes(), EvaluationConfig)
    if not config.asked:
        raise SchemaError(
            f"{file} does not say what was asked for, because an earlier version wrote it: repeat the command of that run, "
            "which adds it and keeps what was played"
        )
    return config


def read_episodes(path: str | Path) -> list[EpisodeScore]:
    """The finished episodes of a run folder, reduced one at a time."""
    file = Inside(Path(path)) / TRAJECTORIES
    if not file.exists():
        raise UsageError(f"{path} is not a run folder: there is no {TRAJECTORIES} in it")
    return [episode_of(trajectory) for trajectory in read_trajectories(file)]


def read_report(path: str | Path) -> Report:
    """The report of a run folder."""
    file = Inside(Path(path)) / REPORT
    if not file.exists():
        raise UsageError(f"{path} has no {REPORT}: the evaluation has not ended. Run the same command again to resume it")
    return decode_json(file.read_bytes(), Report)
