"""What an oracle of MiniWoB++ works with: the task in words and the elements on the page, now and before. It sees no more."""

import re
from collections.abc import Callable, Iterable, Sequence

from palestra.errors import Unsupported
from palestra.worlds.web.snapshot import Element

__all__ = ["SOLVERS", "Solver", "View", "click", "fill", "number_of", "solves"]


class View:
    """The observations of an episode so far.

    Args:
        goal: The task in words.
        pages: The elements of every observation, the latest last.
    """

    def __init__(self, goal: str, pages: Sequence[Sequence[Element]]) -> None:
        self.goal = goal
        self.pages = pages
        self.elements = pages[-1]
        self.turn = len(pages) - 1

    def all(self, *roles: str) -> list[Element]:
        """Return the elements with one of ``roles`` that can be acted on."""
        return [element for element in self.elements if element.role in roles and element.ref]

    def named(self, name: str, *roles: str) -> Element | None:
        """Return the first element that ``name`` describes: its name, or its text."""
        for element in self.elements:
            if element.ref and name in (element.name, element.value) and (not roles or element.role in roles):
                return element
        return None

    def need(self, name: str, *roles: str) -> Element:
        """Return the element that ``name`` describes, or raise ``Unsupported``."""
        element = self.named(name, *roles)
        if element is None:
            raise Unsupported(f"the oracle finds no {name!r} on the page")
        return element

    def quoted(self) -> list[str]:
        """Return the texts of the goal in quotation marks."""
        return re.findall(r'"([^"]*)"', self.goal)

    def texts(self) -> list[str]:
        """Return every text on the page in order."""
        return [text for element in self.elements for text in (element.value or element.name,) if text]


Solver = Callable[[View], str]
SOLVERS: dict[str, Solver] = {}
"""Task → oracle, filled by ``solves``."""


def solves(*names: str) -> Callable[[Solver], Solver]:
    """Make a function the oracle of these tasks."""

    def keep(solver: Solver) -> Solver:
        SOLVERS.update(dict.fromkeys(names, solver))
        return solver

    return keep


def click(element: Element) -> str:
    """Return the action that clicks ``element``."""
    return f"click [{element.ref}]"


def fill(view: View, wanted: Iterable[tuple[Element, str]], button: str) -> str:
    """Return the action that fills the first field which has another content, or clicks ``button`` if there is none."""
    for field, text in wanted:
        if field.value != text:
            return f"type [{field.ref}] [{text}] [0]"
    return click(view.need(button))


def number_of(words: str) -> int:
    """Return the number in ``3rd``."""
    match = re.search(r"(-?\d+)(?:st|nd|rd|th)?", words)
    if match is None:
        raise Unsupported(f"the oracle finds no number in {words!r}")
    return int(match[1])
