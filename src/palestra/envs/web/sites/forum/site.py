"""The forum as a site."""

from dataclasses import replace

from palestra.envs.web.sites.contract import Site
from palestra.envs.web.sites.errands import Errand, Plan

__all__ = ["FORUM", "HOST", "errand"]

HOST = "forum.test"
_HERE = "palestra.envs.web.sites.forum"
FORUM = Site(
    HOST,
    "palestra.envs.web.sites.on_django.application:application",
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
