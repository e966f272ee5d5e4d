"""A task of WebArena-Verified: its goal in Palestra's browser, its requests recorded, its package as the grader.

The sites are the user's own, by their addresses, or sites of Palestra in boxes. The browser stays in its jail: the proxy passes
its requests on to these addresses and to no others. The answer is the JSON that the benchmark asks for. An episode seeded with
``s`` plays the task at place ``s`` of the list, so that seeds 0 to 811 play each of its own tasks once.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from palestra.core import Step
from palestra.envs.web.arena.recording import Recording
from palestra.envs.web.arena.worker import ArenaTask, Judge, Package, shared_judge
from palestra.envs.web.sites.env import Errands
from palestra.envs.web.sites.errands import Errand, Town, Walk
from palestra.envs.web.sites.visit import Sites
from palestra.errors import EnvError, Unsupported, UsageError
from palestra.trajectory import StopReason

__all__ = ["Boxed", "WebArenaVerified"]

_ANSWER = (
    'End with stop and one JSON object in its brackets: {"task_type": "RETRIEVE", "MUTATE" or "NAVIGATE", "status": "SUCCESS" '
    'or the kind of error, "retrieved_data": a list for RETRIEVE, otherwise null, "error_details": null or a reason}.'
)


class Boxed(NamedTuple):
    """Sites of Palestra that answer instead of the network."""

    town: str
    """``module:name`` of a ``Town``."""
    account: str
    """A template of the town: episodes begin with its session."""
    world: int = 0
    """The seed of the sites."""


class WebArenaVerified(Errands):
    """Tasks of WebArena-Verified.

    Args:
        addresses: Name of a site, such as ``shopping``, to its address, which begins with ``http://``.
        data: A file of tasks in the format of the package. Without it, the package has 812 tasks.
        boxes: The fields of ``Boxed``: sites of Palestra answer, instead of the network.
        storage: A file with Playwright's storage state: the logins at your own sites.
        max_turns: The turn limit.
        picture: Whether the observation has a screenshot beside the elements.
    """

    reward_range = (0.0, 1.0)

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        data: str = "",
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
        self._package = Package(tuple(sorted((name, _as_browsers_write(address)) for name, address in addresses.items())), data)
        self._storage = storage
        self._judge: Judge | None = None

    async def _drawn(self, own: int) -> tuple[Errand, int]:
        if self._judge is None:
            self._judge = await self._stack.enter_async_context(shared_judge(self._package))
        playable = [task for task in await self._judge.tasks() if task.start]
        if not playable:
            raise UsageError("no task has only sites whose address is known: see the argument addresses")
        self.arena: ArenaTask = playable[self.task.seed % len(playable)]
        errand = Errand(str(self.arena.id), f"{self.arena.goal}\n{_ANSWER}", self.arena.start, _no_plan)
        if self._boxed is None:
            return errand, own
        known = self._town.errand(self._boxed.world, self._boxed.account)
        return replace(errand, cookies=known.cookies, options=known.options, hosts=known.hosts), self._boxed.world

    def _new_sites(self) -> Sites:
        return Recording(
            () if self._boxed is not None else {urlsplit(address).netloc for _, address in self._package.addresses}
        )

    def _first_storage(self) -> Any:
        if not self._storage:
            return super()._first_storage()
        try:
            return json.loads(Path(self._storage).read_text())
        except (OSError, ValueError) as error:
            raise UsageError(f"{self._storage} has no storage state of Playwright: {error}") from None

    async def _cleaned(self) -> bool:
        return False  # pages of other sites run scripts

    async def _graded(self, answer: str, *, stopped: bool) -> Step:
        assert self._judge is not None
        assert isinstance(self._sites, Recording)
        self._check_alive()
        info: dict[str, Any] = {"success": False, "template": self.errand.template}
        if not stopped:  # without an answer there is nothing to grade
            return Step("You have used all actions.", 0.0, False, True, {**info, "stop_reason": StopReason.TURN_LIMIT})
        if not self._sites.entries:
            raise EnvError("the episode has no request to grade")
        found = await self._judge.grade(self.arena.id, answer, self._sites.entries)
        info = {**info, "success": found.score >= 1.0, "graded": found.status}
        return Step("The episode has ended.", found.score, True, False, info)

    async def fork(self) -> "Errands":
        raise Unsupported("an episode of WebArena-Verified cannot be copied: its sites may be elsewhere")

    async def close(self) -> None:
        self._judge = None
        await super().close()


def _as_browsers_write(address: str) -> str:
    """Return an address with its host in small letters and without the usual port: the requests of a browser name it so."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.lower().removesuffix(":80")).geturl()


def _no_plan(walk: Walk) -> str:
    raise Unsupported("WebArena-Verified has no oracle")


class _NoTown(Town):
    """No site in a box."""

    sites = ()
    views: Mapping[str, Any] = {}
    levels: Mapping[str, tuple[str, ...]] = {"easy": ()}

    def errand(self, seed: int, template: str) -> Errand:
        raise Unsupported("there is no town")
