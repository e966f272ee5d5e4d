"""The tracker as a WSGI application. The project is in the working folder, and no connection to it stays open."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Trac imports pkg_resources, which warns
    from trac.db.api import DatabaseManager
    from trac.env import open_environment
    from trac.web.main import dispatch_request

from palestra.worlds.web.sites.tracker.world import PROJECT

__all__ = ["application"]


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request."""
    environ["trac.env_path"] = PROJECT
    try:
        return [part if isinstance(part, bytes) else part.encode() for part in dispatch_request(environ, start)]
    finally:
        DatabaseManager(open_environment(PROJECT, use_cache=True)).shutdown()
