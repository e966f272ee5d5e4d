"""A web in a box: web applications that belong to one episode each.

``Site`` names an application of your own, a ``Town`` has sites and tasks, an ``Errand`` is one task, and ``Errands`` is the
environment that plays them.
"""

from typing import TYPE_CHECKING

from palestra.foundation.imports import lazy_names

if TYPE_CHECKING:
    from palestra.worlds.web.sites.contract import Site
    from palestra.worlds.web.sites.errands import Errand, Town, Walk
    from palestra.worlds.web.sites.state import Change

__all__ = ["Change", "Errand", "Site", "Town", "Walk"]

__getattr__ = lazy_names(
    __name__, {"Change": "state", "Errand": "errands", "Site": "contract", "Town": "errands", "Walk": "errands"}
)
