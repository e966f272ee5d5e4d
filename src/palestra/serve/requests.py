"""One HTTP connection: uvicorn's protocol with a slot. It catches every error that a peer's data can cause."""

import asyncio
import logging
from typing import Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from palestra.foundation.resources.connections import Slices
from palestra.serve.logs import Sparse
from palestra.serve.slots import ConnectionSlot

__all__ = ["SLOT", "HttpConnection"]

_log = logging.getLogger("palestra.serve.http")
_log.setLevel(logging.WARNING)
_log.addFilter(Sparse())

SLOT = "slot"
"""The key of a connection's slot in the state of its requests."""


class HttpConnection(H11Protocol):
    """The start of every connection; a WebSocket takes over after its upgrade."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.logger = _log  # uvicorn's own logger would let peers fill the log
        self._slot: ConnectionSlot = self.app_state[SLOT]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._slot.transport = cast("asyncio.Transport", transport)
        self._slices = Slices(self._slot.transport, self._take, lambda: not self.flow.read_paused)
        super().connection_made(self._slot.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._slices.close()
        self._slot.free()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._slices.receive(data)

    def _take(self, data: bytes) -> None:
        try:
            super().data_received(data)
            cycle: RequestResponseCycle | None = self.cycle  # None before the first request
            self._slot.answering = cycle is not None and not cycle.response_complete
        except Exception:  # noqa: BLE001 - an internal error closes this connection alone, and is logged
            _log.warning("closing a connection whose request could not be read", exc_info=True)
            self._slot.abort()

    def on_response_complete(self) -> None:
        self._slot.answered()
        super().on_response_complete()
