"""Manners in a notebook: objects as small HTML tables, and progress as one line that is written over.

A model or a stranger's environment wrote the texts, so every cell is escaped and cut.
"""

import sys
from collections.abc import Iterable, Sequence
from time import monotonic

__all__ = ["ProgressLine", "html_table", "in_notebook"]

_LONGEST_CELL = 400
_MOST_ROWS = 50
_PAUSE = 0.2
"""Seconds between two versions of a progress line."""


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table. Long texts and further rows are cut, and the table says so."""
    from html import escape

    shown = list(rows)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in shown[:_MOST_ROWS])
    more = f"<p>… {len(shown) - _MOST_ROWS} more</p>" if len(shown) > _MOST_ROWS else ""
    names = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in head)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>{more}"


def _cell(value: object) -> str:
    from html import escape  # its table of entities takes a millisecond of "import palestra"

    text = f"{value:.2f}" if isinstance(value, float) else str(value)
    cut = text if len(text) <= _LONGEST_CELL else f"{text[:_LONGEST_CELL]}…"
    return f"<td style='text-align:left;white-space:pre-wrap'>{escape(cut)}</td>"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook, which shows HTML and draws progress bars."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


class ProgressLine:
    """``playing 12/50``, written over itself on standard error: notebooks show that as one line, without widgets."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._written = 0.0

    def show(self, done: int, total: int | None) -> None:
        """Write the line, unless it was written a moment ago. The last version ends it."""
        ended = done == total
        if ended or monotonic() - self._written > _PAUSE:
            self._written = monotonic()
            print(f"\r{self._title} {done}/{total or '?'}", end="\n" if ended else "", file=sys.stderr, flush=True)
