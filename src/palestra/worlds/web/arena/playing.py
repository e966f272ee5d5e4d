"""What the two WebArenas have in common: sites by their addresses, the logins at them, and the jail that reaches nothing else.

The sites are the user's own, or sites of Palestra in boxes. The browser stays in its jail: the proxy passes its requests on to
the given addresses and to no others.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from palestra.errors import Unsupported, UsageError
from palestra.worlds.web.arena.recording import Passing
from palestra.worlds.web.browsers import answered
from palestra.worlds.web.sites.env import Errands
from palestra.worlds.web.sites.errands import Errand, Town, Walk
from palestra.worlds.web.sites.hosts import Sites
from palestra.worlds.web.sites.page import ROUNDS

__all__ = ["Arena", "Boxed"]


class Boxed(NamedTuple):
    """Sites of Palestra that answer instead of the network."""

    town: str
    """``module:name`` of a ``Town``."""
    account: str
    """A template of the town: episodes begin with its session."""
    world: int = 0
    """The seed of the sites."""


class Arena(Errands):
    """Tasks at sites that are known by their addresses.

    Args:
        addresses: Name of a site, such as ``shopping``, to its address, which begins with ``http://``.
        boxes: The fields of ``Boxed``: sites of Palestra answer, instead of the network.
        storage: A file with Playwright's storage state: the logins at your own sites.
        max_turns: The turn limit.
        picture: Whether the observation has a screenshot beside the elements.
    """

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    care = "Do what the task asks and nothing else."
    keeps_context = False  # pages of other sites run scripts
    rounds = ROUNDS  # they begin much of their work with timers
    starts: Sequence[str]
    """The addresses of the first pages, one tab for each. The agent sees the first one."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        boxes: Mapping[str, Any] | None = None,
        storage: str = "",
        max_turns: int = 30,
        picture: bool = False,
    ) -> None:
        for name, address in addresses.items():
            if urlsplit(address).scheme != "http":
                raise UsageError(f"the address of {name} must begin with http://, got {address!r}")
        self._boxed = Boxed(**boxes) if boxes else None
        super().__init__(self._boxed.town if self._boxed else _NoTown(), max_turns=max_turns, picture=picture)
        self.addresses = tuple(sorted((name, _as_browsers_write(address)) for name, address in addresses.items()))
        self._storage = storage

    def _errand(self, id: int, goal: str, starts: Sequence[str], seed: int) -> tuple[Errand, int]:
        """Return the errand of a task, and the seed of its sites."""
        self.starts = starts
        errand = Errand(str(id), goal, starts[0], _no_plan)
        if self._boxed is None:
            return errand, seed
        account = self._town.errand(self._boxed.world, self._boxed.account)
        return replace(errand, cookies=account.cookies, options=account.options, hosts=account.hosts), self._boxed.world

    async def _open_first(self) -> None:
        await super()._open_first()
        visit = self._visit
        for address in self.starts[1:]:
            async with answered():
                await visit.tabs.open()
                await visit.tabs.settle(visit.access)
                await visit.open(address)
        await visit.tabs.show(0)

    def _new_sites(self) -> Sites:
        return Passing(self._origins())

    def _origins(self) -> set[str]:
        """Return the hosts to which requests are passed on."""
        return set() if self._boxed is not None else {urlsplit(address).netloc for _, address in self.addresses}

    def _first_storage(self) -> Any:
        if not self._storage:
            return super()._first_storage()
        try:
            return json.loads(Path(self._storage).read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._storage} has no storage state of Playwright: {error}") from None

    async def fork(self) -> "Errands":
        raise Unsupported("an episode of WebArena cannot be copied: its sites may be elsewhere")


def _as_browsers_write(address: str) -> str:
    """Return an address with its host in small letters and without the usual port: the requests of a browser name it so."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.lower().removesuffix(":80")).geturl()


def _no_plan(walk: Walk) -> str:
    raise Unsupported("WebArena has no oracle")


class _NoTown(Town):
    """No site in a box."""

    sites = ()
    views: Mapping[str, Any] = {}
    levels: Mapping[str, tuple[str, ...]] = {"easy": ()}

    def errand(self, seed: int, template: str) -> Errand:
        raise Unsupported("there is no town")
