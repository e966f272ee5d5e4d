"""Accepts connections, and keeps accepting them under attack.

When descriptors run out, asyncio's own server logs a traceback per connection, thousands at a time, and it never closes a
connection that stays silent. This listener gives every connection a slot (``slots``). It accepts a few per iteration of the
event loop, so that established sessions are served in between. If descriptors still run out, it closes the oldest
unauthenticated connections and logs one line.
"""

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from functools import partial

from palestra.foundation.resources.connections import bind
from palestra.serve.logs import Sparse
from palestra.serve.slots import ConnectionSlot, Slots

__all__ = ["ACCEPTED_AT_ONCE", "Listener", "bind"]

_log = logging.getLogger("palestra.serve.listener")
_log.addFilter(Sparse())

ACCEPTED_AT_ONCE = 16
"""Connections accepted per iteration of the event loop."""
EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PAUSE_SECONDS = 0.05
"""Seconds to wait before accepting again after the system refused."""
BACKLOG = 4096


class Listener:
    """A listening socket. ``protocol`` makes the protocol object of each accepted connection."""

    def __init__(
        self,
        listening: socket.socket,
        slots: Slots,
        protocol: Callable[[ConnectionSlot], asyncio.Protocol],
        tls: ssl.SSLContext | None,
    ) -> None:
        self._socket = listening
        self._slots = slots
        self._protocol = protocol
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._expiring = self._loop.create_task(self._expire())
        self._closed = False
        listening.setblocking(False)
        listening.listen(BACKLOG)
        self._open()

    def close(self) -> None:
        """Stop accepting connections. Open ones stay open."""
        self._closed = True
        self._loop.remove_reader(self._socket)
        self._expiring.cancel()

    async def wait_closed(self) -> None:
        """Wait until ``close`` has taken effect."""
        await asyncio.wait([self._expiring])

    def _open(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._refused(error)
                return
            accepted.setblocking(False)
            slot = self._slots.take()
            slot.accepting = self._loop.create_task(self._connect(accepted, slot))
            slot.accepting.add_done_callback(partial(_connected, accepted, slot))

    def _refused(self, error: OSError) -> None:
        if error.errno not in EXHAUSTED:
            raise error
        _log.warning("cannot accept connections: %s; closing the oldest ones without a token", error.strerror)
        self._slots.evict(ACCEPTED_AT_ONCE)
        self._loop.remove_reader(self._socket)
        self._loop.call_later(PAUSE_SECONDS, self._open)

    async def _connect(self, accepted: socket.socket, slot: ConnectionSlot) -> None:
        patience = None if self._tls is None else self._slots.patience
        await self._loop.connect_accepted_socket(
            lambda: self._protocol(slot), accepted, ssl=self._tls, ssl_handshake_timeout=patience
        )

    async def _expire(self) -> None:
        while True:
            await asyncio.sleep(self._slots.patience / 10)
            self._slots.expire()


def _connected(accepted: socket.socket, slot: ConnectionSlot, connecting: asyncio.Task[None]) -> None:
    failed = connecting.cancelled() or connecting.exception() is not None
    if failed:  # the TLS handshake failed, or the slot was taken away during it
        slot.free()
        accepted.close()
