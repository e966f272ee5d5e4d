"""The gateway's own threads.

The gateway renders long prompts in a thread, so that they do not hold up the event loop. It does not use the threads of the
loop's default executor. Agents that block run there (``asyncio.to_thread``). If they filled that executor, they would wait for
the gateway, and the gateway would wait for one of them to end.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["GatewayThreads"]

_Result = TypeVar("_Result")
_MOST = 4
"""Most threads. They render text, which keeps the interpreter's lock for much of the time: more would not be faster."""


class GatewayThreads:
    """At most four threads, started when they are needed. They belong to no event loop: a gateway may outlive several."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], _Result]) -> _Result:
        """Return the result of ``work``, which runs in a thread."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_MOST, thread_name_prefix="palestra-gateway")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def close(self) -> None:
        """End the threads as soon as their work is done, without waiting for it. Later work starts new ones."""
        if self._executor is not None:
            self._executor.shutdown(wait=False)
            self._executor = None
