"""Where workers come from. ``LocalFleet`` keeps them in this process; ``rays.RayFleet`` asks Ray for them."""

from contextlib import AsyncExitStack
from typing import Protocol

from palestra.cluster.config import Pool
from palestra.cluster.worker import Opened, Orders, RolloutWorker
from palestra.errors import PalestraError

__all__ = ["Fleet", "Hand", "LocalFleet", "Lost"]


class Lost(PalestraError):
    """A worker, its process or its node is gone, or does not answer. What it held will be played by another."""


class Hand(Protocol):
    """A worker as its employer sees it. Any call may raise ``Lost``; ``open`` may wait until there is room for the worker."""

    async def open(self) -> Opened:
        """Begin a session."""
        ...

    async def exchange(self, session: str, orders: Orders) -> bytes:
        """Give orders, take a batch."""
        ...

    async def replace(self) -> None:
        """End the worker's process, so that the next ``open`` finds a new one."""
        ...

    async def close(self) -> None:
        """Let the worker go."""
        ...


class Fleet(Protocol):
    """Hires workers. An async context manager: entering connects, leaving lets everybody go."""

    async def __aenter__(self) -> "Fleet": ...

    async def __aexit__(self, *_: object) -> None: ...

    async def room(self, pool: Pool) -> int:
        """How many workers of ``pool`` fit at present; at least 1."""
        ...

    def hire(self, pool: Pool) -> Hand:
        """A worker. It need not be there yet."""
        ...


class LocalHand:
    """A worker in this process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._worker = RolloutWorker(pool.concurrency)

    async def open(self) -> Opened:
        return await self._worker.open()

    async def exchange(self, session: str, orders: Orders) -> bytes:
        return await self._worker.exchange(session, orders)

    async def replace(self) -> None:
        await self._worker.close()
        self._worker = RolloutWorker(self._pool.concurrency)

    async def close(self) -> None:
        await self._worker.close()


class LocalFleet:
    """Workers in this process, one for each pool unless the pool says otherwise."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "LocalFleet":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def room(self, pool: Pool) -> int:
        return 1

    def hire(self, pool: Pool) -> Hand:
        hand = LocalHand(pool)
        self._stack.push_async_callback(hand.close)
        return hand
