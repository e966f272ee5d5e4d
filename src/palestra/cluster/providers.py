"""Where workers come from. ``LocalProvider`` runs them in this process; ``rays.RayProvider`` starts them with Ray."""

from contextlib import AsyncExitStack
from typing import Protocol

from palestra.cluster.config import Pool
from palestra.cluster.worker import JobOrders, Opened, RolloutWorker
from palestra.errors import PalestraError

__all__ = ["LocalProvider", "Lost", "WorkerHandle", "WorkerProvider"]


class Lost(PalestraError):
    """A worker, its process or its node is gone, or does not answer. Another worker plays its episodes."""


class WorkerHandle(Protocol):
    """A worker as the dispatcher sees it. Any call may raise ``Lost``; ``open`` may wait until there is room for the worker."""

    async def open(self) -> Opened:
        """Begin a session."""
        ...

    async def exchange(self, session: str, orders: JobOrders) -> bytes:
        """Send orders and receive a batch."""
        ...

    async def replace(self) -> None:
        """End the worker's process; the next ``open`` reaches a new one."""
        ...

    async def close(self) -> None:
        """End the worker for good."""
        ...


class WorkerProvider(Protocol):
    """Starts workers. An async context manager: entering connects, leaving ends all workers."""

    async def __aenter__(self) -> "WorkerProvider": ...

    async def __aexit__(self, *_: object) -> None: ...

    async def room(self, pool: Pool) -> int:
        """How many workers of ``pool`` fit now; at least 1."""
        ...

    def start(self, pool: Pool) -> WorkerHandle:
        """Start a worker. It may still be starting when this returns."""
        ...


class LocalHandle:
    """A worker in this process."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._worker = RolloutWorker(pool.concurrency)

    async def open(self) -> Opened:
        return await self._worker.open()

    async def exchange(self, session: str, orders: JobOrders) -> bytes:
        return await self._worker.exchange(session, orders)

    async def replace(self) -> None:
        await self._worker.close()
        self._worker = RolloutWorker(self._pool.concurrency)

    async def close(self) -> None:
        await self._worker.close()


class LocalProvider:
    """Workers in this process, one per pool unless the pool sets another number. For trying out a program without Ray."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "LocalProvider":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def room(self, pool: Pool) -> int:
        return 1

    def start(self, pool: Pool) -> WorkerHandle:
        handle = LocalHandle(pool)
        self._stack.push_async_callback(handle.close)
        return handle
