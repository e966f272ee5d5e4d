"""What an action has changed on a page, in one line that names elements by their ids.

The line holds no text of the page, so a page cannot use it to speak to the agent.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from palestra.worlds.web.snapshot import Element

__all__ = ["changed"]

_MOST = 20
"""The number of elements of a kind that the line names. It counts the others."""


def changed(before: Sequence[Element], after: Sequence[Element]) -> str:
    """Return what is new, gone or different in ``after``, which shows the same document as ``before``.

    The focus counts too: the element that has it is different. The place of an element does not count.
    """
    was, now = _by_ref(before), _by_ref(after)
    parts = [
        _named("new", (ref for ref in now if ref not in was)),
        _named("different", (ref for ref in now if ref in was and now[ref] != was[ref])),
        _named("gone", (ref for ref in was if ref not in now)),
        _counted(before, after),
    ]
    return ", ".join(filter(None, parts)) or "nothing"


def _by_ref(elements: Sequence[Element]) -> dict[str, Element]:
    return {element.ref: _content(element) for element in elements if element.ref}


def _content(element: Element) -> Element:
    return element._replace(depth=0, box=None)


def _named(kind: str, refs: Iterable[str]) -> str:
    named = list(refs)
    if not named:
        return ""
    more = f" and {len(named) - _MOST} more" if len(named) > _MOST else ""
    return f"{kind} {' '.join(f'[{ref}]' for ref in named[:_MOST])}{more}"


def _counted(before: Sequence[Element], after: Sequence[Element]) -> str:
    """Return how many elements without an id are new or gone, such as texts."""
    was, now = (Counter(_content(element) for element in elements if not element.ref) for elements in (before, after))
    number = max((now - was).total(), (was - now).total())
    return f"{number} {'text' if number == 1 else 'texts'}" if number else ""
