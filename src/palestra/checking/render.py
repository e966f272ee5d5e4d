"""A report for people: what is right in few lines, what is wrong with what to do about it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from palestra.checking.report import CheckReport, Status

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render"]

_MARKS = {Status.PASS: ("✓", "green"), Status.FAIL: ("✗", "bold red"), Status.WARN: ("!", "yellow"), Status.SKIP: ("·", "dim")}
_SHORT = 44
"""Messages up to this length stand two to a line."""


def render(report: CheckReport) -> "Table":
    """The report as a table to print with rich."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    def marked(status: Status, message: str) -> Text:
        mark, style = _MARKS[status]
        return Text.assemble("  ", (mark, style), f" {message}", style="dim" if status is Status.SKIP else "")

    table = Table.grid()
    table.add_row(Text(_headline(report), style="bold"))
    for pair in _in_pairs(_merged(finding.message for finding in report.found(Status.PASS))):
        first, *second = (marked(Status.PASS, message) for message in pair)
        first.pad_right(max(0, _SHORT + 4 - len(first)) if second else 0)
        table.add_row(first.append_text(second[0]) if second else first)
    for status in (Status.SKIP, Status.WARN, Status.FAIL):
        for finding in report.found(status):
            table.add_row(marked(status, finding.message))
            if finding.detail:
                table.add_row(Padding(Text(finding.detail, style="dim"), (0, 0, 0, 4)))
    return table


def _headline(report: CheckReport) -> str:
    played = f"{report.tasks}" if report.tasks == report.asked else f"{report.tasks} of {report.asked}"
    return f"{report.env}: {played} tasks, {report.seconds:.1f} s"


def _merged(messages: Iterable[str]) -> list[str]:
    """Messages that say the same of several things as one: ``same (here)`` and ``same (there)`` make ``same (here, there)``."""
    about: dict[str, list[str]] = {}
    for message in messages:
        head, _, thing = message.partition(" (")
        about.setdefault(head, []).extend([thing.removesuffix(")")] if thing else [])
    return [f"{head} ({', '.join(things)})" if things else head for head, things in about.items()]


def _in_pairs(messages: list[str]) -> Iterator[list[str]]:
    """The long ones alone, the short ones two by two."""
    yield from ([message] for message in messages if len(message) > _SHORT)
    short = [message for message in messages if len(message) <= _SHORT]
    yield from (short[place : place + 2] for place in range(0, len(short), 2))
