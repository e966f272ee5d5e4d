"""A report for a terminal: passed checks in few lines, failed ones with what to do about them."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from palestra.checking.report import CheckReport, Finding, Status

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["render"]

_MARKS = {Status.PASS: ("✓", "green"), Status.FAIL: ("✗", "bold red"), Status.WARN: ("!", "yellow"), Status.SKIP: ("·", "dim")}
_SHORT = 36
"""Two messages of at most this length share a line of 80 columns."""


def render(report: CheckReport) -> "Table":
    """Return the report as a table that rich prints."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid()
    for status in (Status.PASS, Status.SKIP, Status.WARN, Status.FAIL):
        mark, style = _MARKS[status]
        for message, detail in _lines(status, report.found(status)):
            text = Text(message, style="dim" if status is Status.SKIP else "")
            text.highlight_words([f"{mark} "], style)
            text.append(f"\n{detail}" if detail else "", "dim")
            table.add_row(Text(f"  {mark} ", style), text)
    table.title = Text(_headline(report), "bold")
    table.title_justify = "left"
    return table


def _lines(status: Status, findings: tuple[Finding, ...]) -> list[tuple[str, str]]:
    """Return (message, detail) for findings with one status. Passed and skipped checks share lines where possible."""
    if status in (Status.WARN, Status.FAIL):
        return [(finding.message, finding.detail) for finding in findings]
    messages = _merged(finding.message for finding in findings)
    return [(f"{_MARKS[status][0]} ".join(pair), "") for pair in _in_pairs(messages)]


def _headline(report: CheckReport) -> str:
    played = f"{report.tasks}" if report.tasks == report.asked else f"{report.tasks} of {report.asked}"
    return f"{report.env}: {played} tasks, {report.seconds:.1f} s"


def _merged(messages: Iterable[str]) -> list[str]:
    """Merge messages with the same head: ``same (here)`` and ``same (there)`` become ``same (here, there)``."""
    about: dict[str, list[str]] = {}
    for message in messages:
        head, _, qualifier = message.partition(" (") if message.endswith(")") else (message, "", "")
        about.setdefault(head, []).extend([qualifier.removesuffix(")")] if qualifier else [])
    return [f"{head} ({', '.join(qualifiers)})" if qualifiers else head for head, qualifiers in about.items()]


def _in_pairs(messages: list[str]) -> Iterator[list[str]]:
    """Yield long messages alone and short ones in pairs."""
    yield from ([message] for message in messages if len(message) > _SHORT)
    short = [message for message in messages if len(message) <= _SHORT]
    for start in range(0, len(short), 2):
        first, *second = short[start : start + 2]
        yield [first.ljust(_SHORT + 2), *second] if second else [first]
