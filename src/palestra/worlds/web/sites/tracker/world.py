"""What the tracker of a seed has: developers, components, milestones and tickets. The site and the tasks read it."""

from functools import lru_cache
from typing import NamedTuple

from palestra.foundation.seeding import derive
from palestra.worlds.web.sites.drawing import FIRST_NAMES, Rng, one_of, session_key, some_of

__all__ = [
    "COMPONENTS",
    "MILESTONES",
    "PRIORITIES",
    "PROJECT",
    "RESOLUTIONS",
    "TYPES",
    "Comment",
    "Ticket",
    "Tracker",
    "tracker_of",
]

PROJECT = "project"
"""The folder of the project, in the working folder."""
COMPONENTS = ("editor", "network", "printing", "search", "sync")
MILESTONES = ("release 1.0", "release 1.1", "release 1.2", "release 2.0")
"""The first one is completed."""
PRIORITIES = ("blocker", "critical", "major", "minor", "trivial")
RESOLUTIONS = ("fixed", "invalid", "wontfix", "duplicate", "worksforme")
TYPES = ("defect", "enhancement", "task")
TICKETS = 48
_WHAT = {
    "editor": ("Cursor", "Undo", "Line wrap", "Spell check", "Paste"),
    "network": ("Proxy", "Reconnect", "Download", "Timeout", "Upload"),
    "printing": ("Margin", "Print preview", "Page number", "Color profile", "Landscape mode"),
    "search": ("Search box", "Result list", "Filter", "Wildcard", "Index"),
    "sync": ("Backup", "Conflict dialog", "Shared folder", "Calendar", "Log file"),
}
_HOW = (
    *("fails after midnight", "is slow with large files", "ignores the settings", "loses the last entry"),
    *(
        "shows the wrong language",
        "does not close",
        "needs a shortcut",
        "should remember its size",
        "crashes without a network",
    ),
)
_COMMENTS = (
    "I can reproduce this.",
    "It happens on my machine too.",
    "Please attach a log.",
    "This worked in the last version.",
    "I have asked the author.",
    "Let us talk about it on Monday.",
)


class Comment(NamedTuple):
    """A comment on a ticket."""

    author: str
    text: str


class Ticket(NamedTuple):
    """A ticket."""

    id: int
    summary: str
    component: str
    milestone: str
    priority: str
    type: str
    status: str
    """``new``, ``accepted`` or ``closed``."""
    resolution: str
    owner: str
    reporter: str
    comments: tuple[Comment, ...]

    @property
    def active(self) -> bool:
        return self.status != "closed"

    @property
    def description(self) -> str:
        return f"{self.summary}. Seen in the component {self.component}."


class Tracker(NamedTuple):
    """The tracker of one seed."""

    me: str
    """The developer who is logged in."""
    leaver: str
    """A developer who has two active tickets."""
    developers: tuple[str, ...]
    tickets: tuple[Ticket, ...]
    session: str
    """The value of the cookie with which ``me`` is logged in."""

    def active(self, owner: str = "") -> list[Ticket]:
        """Return the active tickets, of one owner if there is one."""
        return [ticket for ticket in self.tickets if ticket.active and owner in ("", ticket.owner)]


@lru_cache(maxsize=8)
def tracker_of(seed: int) -> Tracker:
    """Return the tracker of ``seed``."""
    rng = derive(seed, "tracker")
    developers = tuple(name.lower() for name in some_of(rng, FIRST_NAMES, 6))
    me, leaver = developers[:2]
    session = session_key(rng)
    names = [(f"{what} {how}", component) for component, words in _WHAT.items() for what in words for how in _HOW]
    tickets = [_ticket(rng, number, name, developers) for number, name in enumerate(some_of(rng, names, TICKETS), 1)]
    for number in some_of(rng, [ticket.id for ticket in tickets if ticket.active], 2):
        tickets[number - 1] = tickets[number - 1]._replace(owner=leaver)
    return Tracker(me, leaver, developers, tuple(tickets), session)


def _ticket(rng: Rng, id: int, name: tuple[str, str], developers: tuple[str, ...]) -> Ticket:
    closed = int(rng.integers(3)) == 0
    milestone = one_of(rng, MILESTONES if closed else MILESTONES[1:])
    resolution = one_of(rng, RESOLUTIONS) if closed else ""
    status = "closed" if closed else one_of(rng, ("new", "new", "accepted"))
    owner, reporter = one_of(rng, developers[2:]), one_of(rng, developers[2:])
    texts = some_of(rng, _COMMENTS, int(rng.integers(4)))
    comments = tuple(Comment(one_of(rng, developers[2:]), text) for text in texts)
    kind = (milestone, one_of(rng, PRIORITIES), one_of(rng, TYPES))
    return Ticket(id, *name, *kind, status, resolution, owner, reporter, comments)
