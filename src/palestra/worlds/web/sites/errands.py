"""What a task on sites is, and what its oracle works with.

A ``Town`` names the sites of a family of tasks and draws an ``Errand`` for each seed. The oracle of an errand is a function of
a ``Walk``: the observations so far. It sees what an agent sees, and decides from the page where it is, so it also finds its
way in a copy of the episode, or after a detour.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.state import Change, Views
from palestra.worlds.web.snapshot import Element

__all__ = ["Errand", "NotShown", "Plan", "Seen", "Town", "Walk", "until"]


class Seen(NamedTuple):
    """One observation: an address, and the elements that were shown."""

    address: str
    elements: Sequence[Element]
    more: bool = False
    """Whether the page has further parts, which ``scroll [down]`` shows."""


class NotShown(Exception):
    """The oracle looks for an element that the observation does not show: it may be in a further part of the page."""


class Walk:
    """The observations of an episode so far, for an oracle."""

    def __init__(self, seen: Sequence[Seen], actions: Sequence[str]) -> None:
        self.seen = seen
        self.actions = actions
        """The actions so far: one less than the observations."""
        self.here = seen[-1]
        self.elements = seen[-1].elements
        self.path = re.sub(r"^http://[^/]+|[?#].*$", "", seen[-1].address)

    def find(self, name: str, *roles: str, after: str = "") -> Element | None:
        """Return the first element with this name or text, of one of ``roles``; with ``after``, behind that text."""
        started = not after
        for element in self.elements:
            if started and element.ref and name in (element.name, element.value) and (not roles or element.role in roles):
                return element
            started = started or after in (element.name, element.value)
        return None

    def need(self, name: str, *roles: str, after: str = "") -> Element:
        """Return what ``find`` returns, or raise ``NotShown``."""
        element = self.find(name, *roles, after=after)
        if element is None:
            raise NotShown(f"the oracle finds no {name!r} on {self.here.address}")
        return element

    def behind(self, text: str, role: str, name: str = "") -> Element:
        """Return the first element of ``role`` behind the one with ``text`` in its name or content.

        ``name`` is a pattern that the whole name must have.
        """
        is_behind = False
        for element in self.elements:
            if not is_behind:
                is_behind = text in element.name + element.value and element.role != role
            elif element.ref and element.role == role and (not name or re.fullmatch(name, element.name)):
                return element
        raise NotShown(f"the oracle finds no {role} behind {text!r} on {self.here.address}")

    def click(self, name: str, *roles: str, after: str = "") -> str:
        """Return the action that clicks an element."""
        return f"click [{self.need(name, *roles, after=after).ref}]"

    def fill(self, fields: Mapping[str, str], button: str) -> str:
        """Return the action that fills the first field which has another content, or clicks ``button`` if there is none."""
        for name, wanted in fields.items():
            field = self.need(name, "textbox", "searchbox", "spinbutton", "combobox")
            if field.role == "combobox":
                if wanted != self.chosen(field):
                    return f"select [{field.ref}] [{wanted}]"
            elif field.value != wanted:
                return f"type [{field.ref}] [{wanted}] [0]"
        return self.click(button, "button")

    def chosen(self, box: Element) -> str:
        """Return the option of a list that is chosen."""
        start = self.elements.index(box)
        for element in self.elements[start + 1 :]:
            if element.depth <= box.depth:
                break
            if "selected" in element.marks:
                return element.name or element.value
        return ""

    def pressed(self, name: str) -> bool:
        """Return whether the last action was a click on the element ``name``."""
        if not self.actions:
            return False
        return any(element.name == name and self.actions[-1] == f"click [{element.ref}]" for element in self.seen[-2].elements)

    def texts(self) -> list[str]:
        """Return every text on the page in order."""
        return [text for element in self.elements for text in (element.name, element.value) if text]


Plan = Callable[[Walk], str]


def until(text: str, plan: Plan) -> Plan:
    """Return a plan that stops as soon as the page says ``text``."""
    return lambda walk: "stop []" if any(text in shown for shown in walk.texts()) else plan(walk)


@dataclass(frozen=True)
class Errand:
    """A task on sites, with all that decides whether it is solved."""

    template: str
    goal: str
    start: str
    """The address of the first page."""
    plan: Plan
    answers: tuple[str, ...] = ()
    """The answers that are right. Without any, the answer does not count."""
    ends_at: str = ""
    """The address at which the episode must stop; empty if it does not matter."""
    wanted: tuple[Change, ...] = ()
    """The changes that the task asks for."""
    allowed: tuple[Change, ...] = ()
    """Changes on the way to them, which are no side effects while the task is not solved."""
    planted: tuple[Change, ...] = ()
    """Changes that an instruction in a page asks for: an attack. Each of them counts as a followed injection."""
    cookies: tuple[tuple[str, str, str], ...] = ()
    """Host, name and value of cookies that the browser has at the beginning, such as that of a session."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Host → keyword arguments of the seeding function of its site."""
    hosts: tuple[str, ...] = ()
    """The sites that the episode has; without any, all sites of the town."""


class Town(Protocol):
    """A family of tasks: sites, what counts as their state, and a task for every seed."""

    @property
    def sites(self) -> tuple[Site, ...]:
        """The sites that an episode has."""
        ...

    @property
    def views(self) -> Mapping[str, Views]:
        """Host → its views. A host without any has no state."""
        ...

    @property
    def levels(self) -> Mapping[str, tuple[str, ...]]:
        """Level → the names of its templates."""
        ...

    def errand(self, seed: int, template: str) -> Errand:
        """Return the task of ``template`` for the world of ``seed``."""
        ...
