"""What an agent has changed in the data of a world, as HTML for people.

The text of the data is only shown: it is escaped, and there are no scripts, links or images.
"""

from collections.abc import Iterable, Iterator, Mapping
from html import escape
from itertools import islice
from typing import Any, NamedTuple

__all__ = ["Difference", "changes", "drawn_changes"]

_MOST_SHOWN = 40
_LONGEST = 160
_DEEPEST = 8
_OLD, _NEW, _QUIET = "#be123c", "#1a7f4e", "#8390a2"
_MISSING = object()


class Difference(NamedTuple):
    """A value that differs."""

    path: str
    """The keys that lead to it, with dots between them."""
    before: str
    """Empty if there was none."""
    after: str
    """Empty if there is none any more."""


def changes(before: Any, after: Any, path: tuple[str, ...] = ()) -> Iterator[Difference]:
    """Yield what differs between two values of dictionaries, lists and plain values."""
    same_kind = isinstance(before, Mapping) == isinstance(after, Mapping)
    old, new = _parts(before), _parts(after)
    if same_kind and old is not None and new is not None and len(path) < _DEEPEST:
        for key in old | new:
            yield from changes(old.get(key, _MISSING), new.get(key, _MISSING), (*path, str(key)))
    elif before != after:
        yield Difference(".".join(path), _shown(before), _shown(after))


def _parts(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    return dict(enumerate(value)) if isinstance(value, list | tuple) else None


def _shown(value: Any) -> str:
    text = "" if value is _MISSING else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def drawn_changes(title: str, made: Iterable[tuple[str, Mapping[str, Any]]], differences: Iterator[Difference]) -> str:
    """Return a title, the calls that were made (names and arguments), and what they have changed."""
    calls = "".join(f"<div>{number}. {escape(_call(*call))}</div>" for number, call in enumerate(made, 1))
    shown = list(islice(differences, _MOST_SHOWN + 1))
    rows = "".join(map(_row, shown[:_MOST_SHOWN])) or f'<div style="color:{_QUIET}">Nothing has changed.</div>'
    more = f'<div style="color:{_QUIET}">and more</div>' if len(shown) > _MOST_SHOWN else ""
    return (
        f'<div style="font:14px/22px ui-monospace,monospace"><div><b>{escape(_shown(title))}</b></div>{calls}'
        f'<div style="margin:6px 0 0"><b>Changed data</b></div>{rows}{more}</div>'
    )


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return _shown(f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})")


def _row(change: Difference) -> str:
    old = f' <span style="color:{_OLD}">− {escape(change.before)}</span>' if change.before else ""
    new = f' <span style="color:{_NEW}">+ {escape(change.after)}</span>' if change.after else ""
    return f"<div>{escape(change.path)}{old}{new}</div>"
