"""A table of policies over environments, kept as data and written as a page.

The table has one entry per policy: for each environment the mean reward, its interval and the number of tasks. Reports of
evaluations are added to it; random and oracle play come from the suite's own table of scores. The page marks what was not
played as "not run" and never leaves it out, and the mean of a part says of how many episodes it is. An entry without
scores is a policy that has no run yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra.errors import SchemaError
from palestra.evaluation.report import Report, Section
from palestra.foundation.encoding import decode_json
from palestra.registry import family_of

__all__ = ["Leaderboard", "LeaderboardEntry", "ScoreCell", "entry_of", "leaderboard_page", "reference_entries"]

NOT_RUN = "not run"


class ScoreCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """The score of one policy in one environment."""

    mean: float
    low: float | None
    """The lower limit of the interval; if episodes are missing, of the range of the mean of all, or ``None``."""
    high: float | None
    tasks: int
    episodes: int = 0
    """Episodes with a score, if others that were asked for have none."""
    asked: int = 0
    """Episodes that were asked for, if some of them have no score."""


class LeaderboardEntry(msgspec.Struct, frozen=True):
    """The scores of one policy."""

    policy: str
    cells: dict[str, ScoreCell] = {}
    """Environment → score."""
    note: str = ""
    """A sentence on how the policy was run."""


class Leaderboard(msgspec.Struct, frozen=True):
    """All entries, in the order in which they are shown."""

    entries: tuple[LeaderboardEntry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "Leaderboard":
        """The table in ``path``; an empty one if there is no such file."""
        if not path.exists():
            return cls()
        try:
            return decode_json(path.read_bytes(), cls)
        except SchemaError as error:
            raise SchemaError(f"{path} is not a leaderboard's table: {error}") from None

    def with_entries(self, entries: Iterable[LeaderboardEntry]) -> "Leaderboard":
        """The board with ``entries`` added; an entry replaces the one of the same policy."""
        table = {entry.policy: entry for entry in self.entries}
        for entry in entries:
            table[entry.policy] = entry
        return Leaderboard(tuple(table.values()))


def entry_of(report: Report, *, name: str = "", note: str = "") -> LeaderboardEntry:
    """The entry of the policy that ``report`` is on."""
    cells = {section.name: cell for section in report.envs if (cell := _cell_of(section)) is not None}
    return LeaderboardEntry(name or report.policy, cells, note or report.privilege)


def _cell_of(section: Section) -> ScoreCell | None:
    if section.score is not None:
        score = section.score
        return ScoreCell(round(score.mean, 4), round(score.low, 4), round(score.high, 4), score.tasks)
    part = None if section.partial is None else section.partial.score
    if part is None:
        return None
    low, high = (None if end is None else round(end, 4) for end in (part.low, part.high))
    return ScoreCell(round(part.mean, 4), low, high, part.tasks, part.episodes, part.asked)


def reference_entries(scores: Mapping[str, Mapping[str, Any]]) -> list[LeaderboardEntry]:
    """The entries of ``random`` and ``oracle``, from the suite's table: environment → player → mean, low, high, tasks."""
    entries = []
    for player in ("random", "oracle"):
        cells = {
            env: ScoreCell(score["mean"], score["low"], score["high"], score["tasks"])
            for env, row in scores.items()
            if (score := row.get(player))
        }
        entries.append(LeaderboardEntry(player, cells))
    return entries


def leaderboard_page(entries: Sequence[LeaderboardEntry], *, head: str = "# Leaderboard\n") -> str:
    """The table as Markdown: a section per namespace, a row per environment, a column per policy."""
    lines = [head]
    lines += [f"- **{_cell(entry.policy)}**: {_cell(entry.note)}" for entry in entries if entry.note]
    envs = sorted({env for entry in entries for env in entry.cells}, key=lambda env: (family_of(env), env))
    for namespace in sorted({env.partition(":")[0] for env in envs}):
        lines += ["", f"## {namespace}", ""]
        inside = [env for env in envs if env.partition(":")[0] == namespace]
        # A policy without any score in this section gets one line below the table instead of a column.
        shown = [entry for entry in entries if any(env in entry.cells for env in inside)]
        lines.append(f"| environment | {' | '.join(_cell(entry.policy) for entry in shown)} |")
        lines.append(f"|---|{'---|' * len(shown)}")
        lines += [f"| `{env}` | {' | '.join(_told(entry.cells.get(env)) for entry in shown)} |" for env in inside]
        if absent := [entry.policy for entry in entries if entry not in shown]:
            lines += ["", f"Not run here: {', '.join(_cell(name) for name in absent)}."]
    return "\n".join(lines) + "\n"


def _told(cell: ScoreCell | None) -> str:
    if cell is None:
        return NOT_RUN
    if cell.asked:
        ends = "unknown" if cell.low is None or cell.high is None else f"{cell.low:.2f} to {cell.high:.2f}"
        return f"{cell.mean:.2f} of {cell.episodes} of {cell.asked} (all: {ends})"
    return f"{cell.mean:.2f} [{cell.low:.2f}, {cell.high:.2f}] ({cell.tasks})"


def _cell(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text).replace("|", "\\|").replace("<", "&lt;")
