"""A web in a box: web applications that belong to one episode each.

``Site`` names an application of your own, a ``Town`` has sites and tasks, an ``Errand`` is one task, and ``Errands`` is the
environment that plays them.
"""

from palestra.envs.web.sites.contract import Site
from palestra.envs.web.sites.errands import Errand, Town, Walk
from palestra.envs.web.sites.state import Change

__all__ = ["Change", "Errand", "Site", "Town", "Walk"]
