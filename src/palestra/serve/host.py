"""The offer of a server: the ids that it was started with, and no others, each isolated as far as it needs.

The server plays a plain environment that answers at once on its event loop. One that blocks (``blocking = True``), or every
plain one with ``isolate``, runs in a worker process: if it hangs or dies, only its session fails.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

from palestra import registry
from palestra.adapters.workers import WorkerPool
from palestra.core import AsyncEnv, Env
from palestra.errors import UsageError
from palestra.foundation.seeding import derive_seed
from palestra.registry import EnvSpec, build, is_pattern, list_envs
from palestra.trajectory import Task

__all__ = ["Host", "Offer"]

_log = logging.getLogger("palestra.serve")

PROBE_SECONDS = 10.0
"""Seconds after which a probe has failed."""


@dataclass(frozen=True, slots=True)
class Offer:
    """One id that clients may play."""

    spec: EnvSpec
    in_place: bool
    """Every verb returns without waiting, so it needs no task and no timer."""
    isolated: bool
    """Each of its sessions holds a worker process."""
    reusable: bool
    """One object is reset for every episode of a session."""
    params: frozenset[str] | None = frozenset()
    """Keys of a task's params that clients may set; ``None`` means all."""

    def refused(self, params: Mapping[str, Any]) -> str:
        """Return why clients may not set ``params``; empty if they may."""
        if self.params is None or not (others := sorted(params.keys() - self.params)):
            return ""
        allowed = f"only {', '.join(sorted(self.params))}" if self.params else "none"
        names = ", ".join(others)
        return f"clients may not set {names} of {self.spec.id}: this server allows {allowed} (serve --any-params allows all)"


class Host:
    """Builds environments by id. Use it as an async context manager: inside, it keeps worker processes warm."""

    def __init__(self, ids: Iterable[str], *, isolate: bool = False, any_params: bool = False) -> None:
        offers = (_offer(spec, isolate) for spec in _named(ids))
        self.offers = {offer.spec.id: replace(offer, params=None) if any_params else offer for offer in offers}
        self.workers = 0
        """Worker processes that sessions hold now."""
        self._stack = AsyncExitStack()

    @property
    def isolates(self) -> bool:
        """Whether any session of this host needs a worker process."""
        return any(offer.isolated for offer in self.offers.values())

    async def __aenter__(self) -> "Host":
        if self.isolates:
            await self._stack.enter_async_context(WorkerPool.held())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def build(self, offer: Offer) -> AsyncEnv:
        """Return a new environment. Pass it to ``close`` in the end, even after an error."""
        env = build(offer.spec, {}, isolate=offer.isolated)
        self.workers += offer.isolated
        return env

    async def close(self, offer: Offer, env: AsyncEnv) -> None:
        """Close ``env``, and kill its worker process if that hangs."""
        self.workers -= offer.isolated
        await env.close()

    async def probe(self) -> str:
        """Play the first step of a real environment, in a worker if there are any. Return the problem, or an empty string."""
        kinds = {offer.isolated: offer for offer in reversed(self.offers.values())}
        for offer in kinds.values():
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._try(offer)
            except Exception as error:  # noqa: BLE001 - the environment may raise anything
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
    specs: dict[str, EnvSpec] = {}
    for name in wanted:
        matches = _matching(name) if is_pattern(name) else [registry.spec(name)]
        specs |= {spec.id: spec for spec in matches}
    if not specs:
        raise UsageError("name at least one environment to serve")
    return list(specs.values())


def _matching(pattern: str) -> list[EnvSpec]:
    """Return the environments that match ``pattern`` and can be made here. A full name that cannot be made is an error."""
    matches = list_envs(pattern)
    able = [spec for spec in matches if not spec.missing()]
    if not able:
        raise UsageError(f'no environment that matches "{pattern}" can be served here (see palestra list, palestra doctor)')
    if lacking := sorted({spec.family for spec in matches} - {spec.family for spec in able}):
        _log.warning("left out of %s because requirements are missing: %s (palestra doctor)", pattern, ", ".join(lacking))
    return able


def _offer(spec: EnvSpec, isolate: bool) -> Offer:
    factory = spec.factory()  # loaded now, so that a missing requirement is known before a client connects
    if not (isinstance(factory, type) and issubclass(factory, Env | AsyncEnv)):
        return Offer(spec, in_place=False, isolated=False, reusable=False)
    plain = issubclass(factory, Env)
    isolated = plain and (factory.blocking or isolate)
    in_place = plain and not isolated and not spec.wrappers
    return Offer(spec, in_place=in_place, isolated=isolated, reusable=factory.reusable, params=factory.client_params)
