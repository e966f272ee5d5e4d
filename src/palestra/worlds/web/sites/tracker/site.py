"""The tracker as a site."""

from dataclasses import replace

from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.errands import Errand, Plan

__all__ = ["HOST", "TRACKER", "errand"]

HOST = "tracker.test"
_HERE = "palestra.worlds.web.sites.tracker"
TRACKER = Site(
    HOST,
    f"{_HERE}.application:application",
    f"{_HERE}.seeding:seed",
    f"{_HERE}.seeding:prepare",
    first_pages=("/roadmap", "/newticket", "/report/1", "/search?q=a"),
    scripts=False,
    database="project/db/trac.db",
    tick=1,  # Trac stores changes under the time at which they were made
)


def errand(goal: str, plan: Plan, **details: object) -> Errand:
    """Return a task that begins on the first page of the tracker."""
    return replace(Errand("", goal, f"http://{HOST}/", plan), **details)  # type: ignore[arg-type]
