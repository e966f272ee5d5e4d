"""One sandbox for everybody on an event loop who wants the same limits. It exists while somebody holds it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakKeyDictionary

from palestra.sandbox.contract import Limits, Sandbox
from palestra.sandbox.local import Bubblewrap

__all__ = ["shared_sandbox"]


class _Held:
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.holders = 0


_held: "WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Limits, _Held]]" = WeakKeyDictionary()


@asynccontextmanager
async def shared_sandbox(limits: Limits | None = None) -> AsyncIterator[Sandbox]:
    """Bubblewrap boxes with ``limits``, shared by all holders of the running loop; the last one to let go closes them."""
    limits = limits or Limits()
    of_loop = _held.setdefault(asyncio.get_running_loop(), {})
    held = of_loop.get(limits)
    if held is None:
        held = of_loop[limits] = _Held(Bubblewrap(limits))
    held.holders += 1
    try:
        yield held.sandbox
    finally:
        held.holders -= 1
        if not held.holders:
            del of_loop[limits]
            await held.sandbox.close()
