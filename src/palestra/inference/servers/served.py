"""Servers as the engine of a run: a ``Transfer`` brings them every new version of the weights (``publishing``).

With ``engine.sleep`` servers share GPUs with the learner. The trainer lets them ``sleep`` before the learner works, and new
weights wake them.
"""

import asyncio
from typing import Any, Protocol, runtime_checkable

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import UsageError
from palestra.foundation.encoding import Ints
from palestra.inference.servers.publishing import Transfer
from palestra.inference.servers.remote import RemoteEngine

__all__ = ["ServedEngine", "SleepingEngine", "sleeping_engine"]


@runtime_checkable
class SleepingEngine(Protocol):
    """An engine that gives its memory to the learner while the learner works."""

    async def sleep(self) -> None:
        """Free memory. Generations wait until ``update_weights`` has woken the engine."""


def sleeping_engine(engine: Any) -> SleepingEngine:
    """Return ``engine``, or raise ``UsageError`` if it cannot sleep."""
    if not isinstance(engine, SleepingEngine):
        raise UsageError(f"engine.sleep = true, but {type(engine).__name__} has no method sleep()")
    return engine


class ServedEngine:
    """An engine for ``Trainer``: publishes the learner's weights, and makes the servers load them."""

    def __init__(self, servers: RemoteEngine, transfer: Transfer, *, keep_weights: bool = False) -> None:
        """``keep_weights``: what the transfer brings is not all of the weights, so servers that sleep keep theirs."""
        self._servers = servers
        self._transfer = transfer
        self._keep_weights = keep_weights
        self._asleep = False
        self.context_length = 0
        """0 until the servers have been asked. The first ``update_weights`` asks them."""

    @property
    def version(self) -> int:
        """The version of the weights that the servers have."""
        return self._servers.version

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        return await self._servers.generate(prompt, sampling, session)

    async def update_weights(self, source: Any, version: int) -> None:
        if not self.context_length:
            await self._servers.connect()
            self.context_length = self._servers.context_length
        written = await asyncio.to_thread(self._transfer.write, source, version)
        if self._asleep:
            await asyncio.to_thread(source.release)
        await self._servers.update_weights(written, version)
        self._asleep = False

    async def sleep(self) -> None:
        self._asleep = True
        await self._servers.sleep(keep_weights=self._keep_weights)

    async def pause(self) -> None:
        await self._servers.pause()

    async def resume(self) -> None:
        await self._servers.resume()

    async def close(self) -> None:
        await self._servers.close()
