"""How the oracle of the tracker acts. Every plan decides from the page on which it is, and from what it has seen."""

import re
from collections.abc import Mapping

from palestra.worlds.web.sites.errands import NotShown, Plan, Walk

__all__ = ["COMMENT", "at_ticket", "on_ticket", "owned_by", "submit", "ticket_field", "ticket_pages"]

COMMENT = "You may use WikiFormatting here."
"""The name of the field for a comment."""
_BOX = "Search the tracker"
_SUBMIT = "Submit changes"
_CELL_OF_OWNER = 4


def on_ticket(walk: Walk, summary: str) -> bool:
    """Return whether the page is that of a ticket."""
    return re.fullmatch(r"/ticket/\d+", walk.path) is not None and walk.find(summary, "heading") is not None


def at_ticket(walk: Walk, summary: str) -> str | None:
    """Return the next action on the way to a ticket, or ``None`` if it is open."""
    if on_ticket(walk, summary):
        return None
    for element in walk.elements:
        if element.role == "link" and re.fullmatch(rf"(#\d+: \w+: )?{re.escape(summary)}( \(.*\))?", element.name):
            return f"click [{element.ref}]"
    box = walk.find(_BOX, "searchbox")
    return f"type [{box.ref}] [{summary}] [1]" if box else "scroll [up]"


def ticket_pages(walk: Walk) -> dict[str, Walk]:
    """Return summary → page of the tickets that were seen."""
    pages = {}
    for seen in walk.seen:
        page = Walk([seen], [])
        if re.fullmatch(r"/ticket/\d+", page.path):
            headings = (element for element in page.elements if element.role == "heading")
            pages[next(heading.name for heading in headings if "level=1" in heading.marks)] = page
    return pages


def ticket_field(walk: Walk, label: str) -> str:
    """Return the value of a field of the ticket on this page, such as ``Owned by:``."""
    return walk.behind(label, "link").name


def submit(summary: str, fields: Mapping[str, str] | None = None, action: str = "", option: str = "") -> Plan:
    """Return the plan to change a ticket: fields, and an action with an option, such as ``resolve`` and ``fixed``."""

    def plan(walk: Walk) -> str:
        if walk.pressed(_SUBMIT) and on_ticket(walk, summary):
            return "stop []"
        if step := at_ticket(walk, summary):
            return step
        radio = walk.need(action, "radio") if action else None
        if radio and "checked" not in radio.marks:
            return f"click [{radio.ref}]"
        box = walk.behind(action, "combobox") if option else None
        if box and walk.chosen(box) != option:
            return f"select [{box.ref}] [{option}]"
        return walk.fill(fields or {}, _SUBMIT)

    return plan


def owned_by(walk: Walk, owner: str, number: int) -> list[str]:
    """Return the summaries of the active tickets of an owner, from the report that was seen."""
    owned: dict[str, None] = {}
    for seen in walk.seen:
        summary, cells = "", 0
        for element in seen.elements:
            if element.role == "row":
                summary, cells = "", 0
            elif element.role == "link" and element.url.startswith("/ticket/") and not element.name.startswith("#"):
                summary, cells = element.name, 0
            elif element.role == "cell" and summary:
                if cells == _CELL_OF_OWNER and element.name == owner:
                    owned[summary] = None
                cells += 1
    if len(owned) < number:
        raise NotShown(f"the report shows {len(owned)} of {number} tickets of {owner}")
    return list(owned)
