"""A table of policies over environments, kept as data and written as a page.

The table holds one entry a policy: for each environment the mean reward, its interval and what it rests on. Reports of
evaluations are added to it; the lines of random and oracle play come from the suite's own table of scores. What was not played
is said to be not run, never left out: an entry without any scores is one that is still to come.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from palestra.encoding import decode_json
from palestra.evaluation.report import Report, family_of

__all__ = ["Cell", "Entry", "Leaderboard", "entry_of", "leaderboard_page", "reference_entries"]

NOT_RUN = "not run"


class Cell(msgspec.Struct, frozen=True):
    """What one policy scored in one environment."""

    mean: float
    low: float
    high: float
    tasks: int
    coverage: float = 1.0
    """Share of the issued episodes that got a score."""


class Entry(msgspec.Struct, frozen=True):
    """One policy."""

    policy: str
    cells: dict[str, Cell] = {}
    """By environment."""
    note: str = ""
    """How it was played, in a sentence."""


class Leaderboard(msgspec.Struct, frozen=True):
    """All entries, in the order in which they are shown."""

    entries: tuple[Entry, ...] = ()

    @classmethod
    def read(cls, path: Path) -> "Leaderboard":
        """The table in ``path``; an empty one if there is no such file."""
        return decode_json(path.read_bytes(), cls) if path.exists() else cls()

    def with_entries(self, entries: Iterable[Entry]) -> "Leaderboard":
        """The same with ``entries``, each in the place of the one it is a newer version of, or at the end."""
        table = {entry.policy: entry for entry in self.entries}
        for entry in entries:
            table[entry.policy] = entry
        return Leaderboard(tuple(table.values()))


def entry_of(report: Report, *, name: str = "", note: str = "") -> Entry:
    """The entry that a report gives."""
    cells = {
        section.name: Cell(
            round(section.score.mean, 4),
            round(section.score.low, 4),
            round(section.score.high, 4),
            section.score.tasks,
            round(section.coverage, 4),
        )
        for section in report.envs
        if section.score is not None
    }
    return Entry(name or report.policy, cells, note)


def reference_entries(scores: Mapping[str, Mapping[str, Any]]) -> list[Entry]:
    """Random and oracle play, from the suite's table: environment → player → mean, low, high, tasks."""
    entries = []
    for player in ("random", "oracle"):
        cells = {
            env: Cell(found["mean"], found["low"], found["high"], found["tasks"])
            for env, row in scores.items()
            if (found := row.get(player))
        }
        entries.append(Entry(player, cells))
    return entries


def leaderboard_page(entries: Sequence[Entry], *, head: str = "# Leaderboard\n") -> str:
    """The table as Markdown: a section for each namespace, a row for each environment, a column for each policy."""
    lines = [head]
    lines += [f"- **{_cell(entry.policy)}**: {_cell(entry.note)}" for entry in entries if entry.note]
    envs = sorted({env for entry in entries for env in entry.cells}, key=lambda env: (family_of(env), env))
    for namespace in sorted({env.partition(":")[0] for env in envs}):
        lines += ["", f"## {namespace}", ""]
        inside = [env for env in envs if env.partition(":")[0] == namespace]
        # A column that would say "not run" in every row is said once.
        shown = [entry for entry in entries if any(env in entry.cells for env in inside)]
        lines.append(f"| environment | {' | '.join(_cell(entry.policy) for entry in shown)} |")
        lines.append(f"|---|{'---|' * len(shown)}")
        lines += [f"| `{env}` | {' | '.join(_told(entry.cells.get(env)) for entry in shown)} |" for env in inside]
        if absent := [entry.policy for entry in entries if entry not in shown]:
            lines += ["", f"Not run here: {', '.join(_cell(name) for name in absent)}."]
    return "\n".join(lines) + "\n"


def _told(cell: Cell | None) -> str:
    if cell is None:
        return NOT_RUN
    part = "" if cell.coverage >= 1.0 else f", {cell.coverage:.0%} scored"
    return f"{cell.mean:.2f} [{cell.low:.2f}, {cell.high:.2f}] ({cell.tasks}{part})"


def _cell(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text).replace("|", "\\|").replace("<", "&lt;")
