"""What a server offers: the ids it was told to serve, and no others, built where they cannot hurt each other.

A plain environment that answers at once is played in place, on the server's event loop. One that blocks (``blocking = True``),
or every plain one if the server was told to ``isolate``, runs in a worker process: if it hangs or dies, one session notices.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from palestra.core import AsyncEnv, Env
from palestra.errors import UsageError
from palestra.registry import EnvSpec, build, list_envs, spec
from palestra.seeding import derive_seed
from palestra.trajectory import Task
from palestra.views import InWorker, WorkerPool

__all__ = ["Host", "Offer"]

_log = logging.getLogger("palestra.serve")

PROBE_SECONDS = 10.0
"""A probe that takes longer has failed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One id a client may ask for."""

    spec: EnvSpec
    in_place: bool
    """Every verb returns without waiting: no task and no timer are needed around it."""
    isolated: bool
    """Each session of it holds a worker process."""
    reusable: bool
    """One object is reset for episode after episode."""


class Host:
    """Builds environments by id. Use as an async context manager: inside, worker processes are kept warm."""

    def __init__(self, ids: Iterable[str], *, isolate: bool = False) -> None:
        self.offers = {known.id: _offer(known, isolate) for known in _named(ids)}
        self.workers = 0
        """Worker processes held by sessions now."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Host":
        if any(offer.isolated for offer in self.offers.values()):
            await self._stack.enter_async_context(WorkerPool.held())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def build(self, offer: Offer) -> AsyncEnv:
        """A new environment. Give it to ``close`` in the end, whatever happened to it."""
        known = offer.spec
        factory = known.factory()
        if offer.isolated and isinstance(factory, type) and issubclass(factory, Env):
            env: AsyncEnv = InWorker(known.reference(), dict(known.kwargs), factory)
        else:
            env = build(known, {})
        for wrap in known.wrappers:
            env = wrap(env)
        self.workers += offer.isolated
        return env

    async def close(self, offer: Offer, env: AsyncEnv) -> None:
        """End ``env``, and its worker process if it has one that hangs."""
        self.workers -= offer.isolated
        await env.close()

    async def probe(self) -> str:
        """Play the first step of a real environment, in a real worker if there are any: empty if well, else what is wrong."""
        kinds = {offer.isolated: offer for offer in reversed(self.offers.values())}
        for offer in kinds.values():
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._try(offer)
            except Exception as error:
                return f"{offer.spec.id}: {type(error).__name__}"
        return ""

    async def _try(self, offer: Offer) -> None:
        env = self.build(offer)
        try:
            await env.reset(task=Task(offer.spec.id, derive_seed(0, "probe")))
        finally:
            await self.close(offer, env)


def _named(ids: Iterable[str]) -> list[EnvSpec]:
    wanted = [ids] if isinstance(ids, str) else list(ids)
    found: dict[str, EnvSpec] = {}
    for name in wanted:
        matches = _matching(name) if any(mark in name for mark in "*?[") else [spec(name)]
        found |= {known.id: known for known in matches}
    if not found:
        raise UsageError("name at least one environment to serve")
    return list(found.values())


def _matching(pattern: str) -> list[EnvSpec]:
    """What ``pattern`` names and can be made here. One that was named in full is not left out, it is a mistake."""
    matches = list_envs(pattern)
    able = [known for known in matches if not known.missing()]
    if not able:
        raise UsageError(f'nothing that matches "{pattern}" can be served here (palestra list, palestra doctor)')
    if lacking := sorted({known.family for known in matches} - {known.family for known in able}):
        _log.warning("left out of %s for want of something: %s (palestra doctor)", pattern, ", ".join(lacking))
    return able


def _offer(known: EnvSpec, isolate: bool) -> Offer:
    factory = known.factory()  # here and now, so that what is missing is known before anybody connects
    if not (isinstance(factory, type) and issubclass(factory, Env | AsyncEnv)):
        return Offer(known, in_place=False, isolated=False, reusable=False)
    plain = issubclass(factory, Env)
    isolated = plain and (factory.blocking or isolate)
    in_place = plain and not isolated and not known.wrappers
    return Offer(known, in_place=in_place, isolated=isolated, reusable=factory.reusable)
