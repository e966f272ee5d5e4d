"""How an application becomes a site that every episode has for itself.

A site is a WSGI or ASGI application. Palestra starts it once, in a warm process, and lets it answer its first pages there, so
that everything it imports and compiles is in memory. Each episode then gets a fork of this process with a folder of its own,
which is the working folder: an application that opens its files by relative paths has a database of its own without knowing
it. In the fork, the clock stands still and all randomness comes from the seed of the episode.

What an application must do: open its database files by relative paths, and keep no connection to them open between two
requests of the warm process. Lifespan events of ASGI are not sent.
"""

from dataclasses import dataclass
from typing import Any

from palestra.errors import UsageError
from palestra.foundation.references import is_reference

__all__ = ["NOW", "Site"]

NOW = 1767258000
"""2026-01-01 09:00 UTC, in seconds: the clock of sites, and of the pages in the browser."""


@dataclass(frozen=True)
class Site:
    """A web application to put into a box. Everything is named, so that another process can load it."""

    host: str
    """The name under which the browser reaches it, such as ``shop.test``. The scheme is http and the port is 80."""
    application: str
    """``module:name`` of a WSGI or ASGI application."""
    seed: str = ""
    """``module:name`` of a function that fills the working folder for an episode: ``seed(seed, **options)``."""
    prepare: str = ""
    """``module:name`` of a function without arguments that writes what all episodes share into the working folder, such as an
    empty database. The warm process calls it once; every episode gets a copy of the files."""
    asgi: bool = False
    """Whether the application is an ASGI application."""
    first_pages: tuple[str, ...] = ("/",)
    """Paths that the warm process answers before the first episode."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables of the process, such as ``DJANGO_SETTINGS_MODULE``."""
    static: tuple[tuple[str, str], ...] = ()
    """Prefixes of paths, and the folder ``package:folder`` whose files answer them: ``("/static/", "oscar:static/oscar")``.
    The application is not asked for these."""
    database: str = ""
    """The name of the SQLite file in the working folder by which tasks are graded."""

    scripts: bool = True
    """Whether its pages may run scripts. Without them, a page cannot act after its episode has ended. The next episode of the
    same environment then uses the same browser context, and its reset takes about half of the CPU time."""
    tick: int = 0
    """Seconds by which the clock advances before each request that is neither GET nor HEAD. An application that stores two
    changes under the same key if they come at the same time needs it."""

    def __post_init__(self) -> None:
        for reference in filter(None, (self.application, self.seed, self.prepare)):
            if not is_reference(reference):
                raise UsageError(f"a site is named as module:name, got {reference!r}")
        if not self.host or any(mark in self.host for mark in "/:@ "):
            raise UsageError(f"the host of a site is a name such as shop.test, got {self.host!r}")

    def described(self) -> dict[str, Any]:
        """Return what the warm process has to know."""
        return {
            "host": self.host,
            "application": self.application,
            "seed": self.seed,
            "prepare": self.prepare,
            "asgi": self.asgi,
            "first_pages": self.first_pages,
            "now": NOW,
            "tick": self.tick,
        }
