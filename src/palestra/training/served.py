"""Servers as the engine of a run: a ``Transfer`` brings them every new version of the weights (``publishing``)."""

import asyncio

from palestra.core import EngineSession, Generation, Sampling
from palestra.encoding import Ints
from palestra.engines.remote import RemoteEngine
from palestra.training.publishing import PolicyWeights, Transfer

__all__ = ["ServedEngine"]


class ServedEngine:
    """An engine for ``Trainer``: publishes the learner's weights, and makes the servers load them."""

    def __init__(self, servers: RemoteEngine, transfer: Transfer) -> None:
        self._servers = servers
        self._transfer = transfer
        self.context_length = 0
        """0 until the servers have been asked. The first ``update_weights`` asks them."""

    @property
    def version(self) -> int:
        """The version of the weights that the servers have."""
        return self._servers.version

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        return await self._servers.generate(prompt, sampling, session)

    async def update_weights(self, source: PolicyWeights, version: int) -> None:
        if not self.context_length:
            await self._servers.connect()
            self.context_length = self._servers.context_length
        written = await asyncio.to_thread(self._transfer.write, source, version)
        await self._servers.update_weights(written, version)

    async def pause(self) -> None:
        await self._servers.pause()

    async def resume(self) -> None:
        await self._servers.resume()

    async def close(self) -> None:
        await self._servers.close()
