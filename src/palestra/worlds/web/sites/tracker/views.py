"""What counts as the state of the tracker, in the words of its developers."""

from palestra.worlds.web.sites.state import Change, Row, Views
from palestra.worlds.web.sites.tracker.world import Ticket

__all__ = ["VIEWS", "changed", "commented", "ticket_row"]

# Under the names query…, search…, roadmap… and report…, Trac keeps what a developer has looked at last.
VIEWS: Views = {
    "ticket": """SELECT id, summary, type, component, priority, coalesce(milestone, ''), status, coalesce(resolution, ''),
        coalesce(owner, ''), reporter, coalesce(cc, ''), coalesce(keywords, ''), coalesce(version, ''), coalesce(severity, ''),
        description FROM ticket""",
    "comment": "SELECT ticket, author, newvalue FROM ticket_change WHERE field = 'comment' AND coalesce(newvalue, '') != ''",
    "custom field": "SELECT ticket, name, value FROM ticket_custom",
    "milestone": """SELECT name, coalesce(due, 0) / 86400000000, coalesce(completed, 0) != 0, coalesce(description, '')
        FROM milestone""",
    "component": "SELECT name, owner, description FROM component",
    "version": "SELECT name, description FROM version",
    "list": "SELECT type, name, value FROM enum",
    "permission": "SELECT username, action FROM permission",
    "report": "SELECT id, title, query, description FROM report",
    "page": "SELECT name, version, author, text FROM wiki",
    "attachment": "SELECT type, id, filename, author FROM attachment",
    "preference": """SELECT sid, authenticated, name, value FROM session_attribute
        WHERE substr(name, 1, 5) NOT IN ('query', 'searc', 'roadm', 'repor')""",
    "subscription": "SELECT sid, class, distributor FROM notify_subscription",
    "watch": "SELECT sid, class, realm, target FROM notify_watch",
}


def ticket_row(ticket: Ticket, keywords: str = "", description: str = "") -> Row:
    """Return the row of a ticket."""
    kind = (
        ticket.type,
        ticket.component,
        ticket.priority,
        ticket.milestone,
        ticket.status,
        ticket.resolution,
        ticket.owner,
        ticket.reporter,
    )
    return (ticket.id, ticket.summary, *kind, "", keywords, "", "", description or ticket.description)


def changed(ticket: Ticket, **fields: str) -> tuple[Change, ...]:
    """Return what other values of fields of a ticket change."""
    return (Change("ticket", ticket_row(ticket), False), Change("ticket", ticket_row(ticket._replace(**fields))))  # type: ignore[arg-type]


def commented(ticket: Ticket, author: str, text: str) -> Change:
    """Return that a ticket has a new comment."""
    return Change("comment", (ticket.id, author, text))
