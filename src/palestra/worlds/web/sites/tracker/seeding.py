"""Fills the database of the tracker: the project once, the rows for every episode."""

import os
import sqlite3
import warnings
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from palestra.worlds.web.sites.contract import NOW
from palestra.worlds.web.sites.tracker.world import COMPONENTS, MILESTONES, PROJECT, Ticket, Tracker, tracker_of

__all__ = ["DATABASE", "prepare", "seed"]

DATABASE = f"{PROJECT}/db/trac.db"
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_NOW = NOW * _SECOND
_OFF = ("trac.versioncontrol.*", "trac.timeline.*", "trac.wiki.web_ui.*", "trac.about.*", "trac.attachment.*", "tracopt.*")
_OPTIONS = (
    ("project", "name", "Workshop"),
    ("trac", "database", "sqlite:db/trac.db"),
    ("trac", "base_url", "http://tracker.test"),
    ("trac", "default_handler", "RoadmapModule"),
    ("trac", "default_timezone", "GMT"),
    ("trac", "default_date_format", "iso8601"),
    ("trac", "permission_policies", "DefaultTicketPolicy, DefaultPermissionPolicy"),
    ("header_logo", "src", ""),
    ("inherit", "templates_dir", str(Path(__file__).parent / "templates")),
    ("logging", "log_type", "none"),
    ("metanav", "order", "login,logout"),
    ("metanav", "help", "disabled"),
    ("metanav", "prefs", "disabled"),
    ("metanav", "about", "disabled"),
    ("query", "items_per_page", "30"),
    ("query", "default_query", "status!=closed&order=id"),
    ("search", "default_disabled_filters", "wiki,milestone"),
    ("ticket", "restrict_owner", "true"),
    ("ticket", "default_milestone", ""),
    *(("components", name, "disabled") for name in _OFF),
)
_PERMISSIONS = (
    *("MILESTONE_VIEW", "MILESTONE_CREATE", "MILESTONE_MODIFY", "MILESTONE_DELETE", "REPORT_VIEW", "ROADMAP_VIEW"),
    *("SEARCH_VIEW", "TICKET_CREATE", "TICKET_MODIFY", "TICKET_VIEW"),
)


def prepare() -> None:
    """Make the project, and what every tracker has."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trac.db.api import DatabaseManager
        from trac.env import Environment

        project = Environment(os.path.abspath(PROJECT), create=True, options=list(_OPTIONS))
    DatabaseManager(project).shutdown()
    with closing(sqlite3.connect(DATABASE)) as database, database:
        for table in ("component", "milestone", "version", "permission"):
            database.execute(f"DELETE FROM {table}")  # noqa: S608 - constants
        database.executemany("INSERT INTO permission VALUES ('authenticated', ?)", [(name,) for name in _PERMISSIONS])
        database.executemany("INSERT INTO component VALUES (?, '', '')", [(name,) for name in COMPONENTS])
        dates = [(_NOW + (60 * number - 30) * _DAY, (_NOW - 50 * _DAY) * (number == 0)) for number in range(len(MILESTONES))]
        database.executemany(
            "INSERT INTO milestone VALUES (?, ?, ?, '')", [(name, *when) for name, when in zip(MILESTONES, dates, strict=True)]
        )


def seed(seed: int, planted: Sequence[Any] = ()) -> None:
    """Write the tracker of ``seed``.

    Args:
        seed: The seed of the episode.
        planted: A ticket and a text that another user wrote as the first comment on it: an attack.
    """
    tracker = tracker_of(seed)
    with closing(sqlite3.connect(DATABASE)) as database, database:
        database.execute("INSERT INTO auth_cookie VALUES (?, ?, '', ?)", (tracker.session, tracker.me, NOW))
        users = [(name,) for name in sorted(tracker.developers)]
        database.executemany(f"INSERT INTO session VALUES (?, 1, {NOW})", users)  # noqa: S608 - constants
        _add_tickets(database, tracker, planted)


def _add_tickets(database: sqlite3.Connection, tracker: Tracker, planted: Sequence[Any]) -> None:
    database.executemany(
        """INSERT INTO ticket (id, type, time, changetime, component, severity, priority, owner, reporter, cc, version,
        milestone, status, resolution, summary, description, keywords)
        VALUES (?, ?, ?, ?, ?, NULL, ?, ?, ?, NULL, NULL, ?, ?, nullif(?, ''), ?, ?, NULL)""",
        [_row(ticket) for ticket in tracker.tickets],
    )
    attack = [(planted[0], "service", planted[1])] if planted else []
    comments = attack + [(ticket.id, comment.author, comment.text) for ticket in tracker.tickets for comment in ticket.comments]
    numbers: dict[int, int] = {}
    rows = []
    for ticket, author, text in comments:
        numbers[ticket] = numbers.get(ticket, 0) + 1
        rows.append((ticket, _opened(ticket) + numbers[ticket] * _DAY // 8, author, str(numbers[ticket]), text))
    database.executemany("INSERT INTO ticket_change VALUES (?, ?, ?, 'comment', ?, ?)", rows)


def _opened(ticket: int) -> int:
    return _NOW - (100 - ticket) * _DAY


def _row(ticket: Ticket) -> tuple[Any, ...]:
    opened = _opened(ticket.id)
    ends = (ticket.milestone, ticket.status, ticket.resolution, ticket.summary, ticket.description)
    return (
        ticket.id,
        ticket.type,
        opened,
        opened + _DAY,
        ticket.component,
        ticket.priority,
        ticket.owner,
        ticket.reporter,
        *ends,
    )
