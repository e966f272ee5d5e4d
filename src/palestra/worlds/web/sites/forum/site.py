"""The forum as a site."""

from dataclasses import replace

from palestra.worlds.web.sites.contract import Site
from palestra.worlds.web.sites.errands import Errand, Plan

__all__ = ["FORUM", "HOST", "errand"]

HOST = "forum.test"
_HERE = "palestra.worlds.web.sites.forum"
FORUM = Site(
    HOST,
    "palestra.worlds.web.sites.on_django.application:application",
    f"{_HERE}.seeding:seed",
    f"{_HERE}.seeding:prepare",
    first_pages=("/", "/category/", "/user/login/"),
    variables=(("DJANGO_SETTINGS_MODULE", f"{_HERE}.settings"),),
    scripts=False,
    database="forum.sqlite",
)


def errand(goal: str, plan: Plan, **details: object) -> Errand:
    """Return a task that begins on the first page of the forum."""
    return replace(Errand("", goal, f"http://{HOST}/", plan), **details)  # type: ignore[arg-type]
