"""Resources that several users share, such as worker processes: made for the first user, closed by the last.

``Shared`` counts the users of one resource. ``SharedPerLoop`` has one for each event loop and key.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

__all__ = ["Shared", "SharedPerLoop"]

K = TypeVar("K", bound=Hashable)
R = TypeVar("R")


class Shared(Generic[R]):
    """One resource, made by ``make`` for its first user. Safe to use from several threads."""

    def __init__(self, make: Callable[[], R]) -> None:
        self._make = make
        self._resource: R | None = None
        # Reentrant: the garbage collector may run a __del__ that releases while this very thread is in hold().
        self._lock = threading.RLock()
        self.users = 0

    def hold(self) -> R:
        """Return the resource. Call ``release`` once for every ``hold``."""
        with self._lock:
            if self._resource is None:
                self._resource = self._make()
            self.users += 1
            return self._resource

    def release(self) -> R | None:
        """Stop using the resource. Returns it to its last user, who must close it, and ``None`` to all others."""
        with self._lock:
            self.users -= 1
            if self.users:
                return None
            resource, self._resource = self._resource, None
            return resource


class SharedPerLoop(Generic[K, R]):
    """One resource per event loop and key. ``make`` makes it for its first user; ``close`` closes it after the last."""

    def __init__(self, make: Callable[[K], R], close: Callable[[R], Awaitable[None]]) -> None:
        self._make = make
        self._close = close
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[K, Shared[R]]] = WeakKeyDictionary()

    @asynccontextmanager
    async def use(self, key: K) -> AsyncIterator[R]:
        """Use the resource of the running event loop and ``key`` for the length of the block."""
        resources = self._loops.setdefault(asyncio.get_running_loop(), {})
        shared = resources.get(key)
        if shared is None:
            shared = resources[key] = Shared(partial(self._make, key))
        resource = shared.hold()
        try:
            yield resource
        finally:
            if shared.release() is not None:
                del resources[key]
                await self._close(resource)
