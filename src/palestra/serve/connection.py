"""One WebSocket from handshake to close: bytes in, frames to the session, bytes out.

It uses asyncio and the I/O-free half of ``websockets`` directly, without a task or a queue per connection. A frame is answered
in the same iteration of the event loop, or by the task of a call that takes longer. Idle sessions cost memory but no CPU.

The connection stops reading from a client that does not read its answers, so the data that waits for it stays bounded.
"""

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Any, cast

import msgspec
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import Event, State
from websockets.server import ServerProtocol

from palestra.errors import SchemaError
from palestra.foundation.resources.connections import Slices
from palestra.serve.logs import Sparse
from palestra.serve.requests import SLOT
from palestra.serve.session import ServerSession
from palestra.serve.sessions import Sessions
from palestra.serve.slots import ConnectionSlot
from palestra.serve.tokens import BearerTokens
from palestra.serve.wire import PATH, Beat, CallFrame, Code, Fault, FromClient, Hello, decode_frame, encode_frame

if TYPE_CHECKING:
    from uvicorn.server import ServerState

__all__ = ["GOING_AWAY", "LEASE_OVER", "SUPERSEDED", "Connection", "Door"]

_log = logging.getLogger("palestra.serve")
_peers = logging.getLogger("palestra.serve.connection")
_peers.addFilter(Sparse())
_quiet = logging.getLogger("palestra.serve.websocket")
_quiet.setLevel(logging.WARNING)  # the protocol checks the level once per connection; every frame is cheaper without debug logs

GOING_AWAY = 1001
TRY_LATER = 1013
SUPERSEDED = 4001
"""The session was resumed on another connection."""
LEASE_OVER = 4002
"""The session's lease ran out, or no Hello arrived in time."""

EVENT_BYTES = 512
"""Bytes of a frame that was read and waits, beside its data."""
FAREWELL_SECONDS = 5.0
"""Seconds that the closing handshake may take."""


class Door:
    """The parts that all connections of a server share."""

    def __init__(self, sessions: Sessions, tokens: BearerTokens) -> None:
        self.sessions = sessions
        self.tokens = tokens
        self.connections: set[Connection] = set()

    def connect(self, *, server_state: "ServerState", app_state: dict[str, Any], **_: Any) -> "Connection":
        """Called by uvicorn when a request asks for a WebSocket."""
        return Connection(self, server_state, app_state[SLOT])

    def sweep(self) -> None:
        """Close the connections whose lease ran out, or on which no Hello arrived in time."""
        gone = set(self.sessions.expire())
        too_old = asyncio.get_running_loop().time() - self.sessions.limits.ttl
        for connection in list(self.connections):
            session = connection.session
            if session in gone or (session is None and connection.since < too_old):
                connection.shut(LEASE_OVER, "the lease ran out")


class Connection(asyncio.Protocol):
    """One client's WebSocket."""

    __slots__ = (
        "_door",
        "_events",
        "_first_hello",
        "_held",
        "_others",
        "_owner",
        "_parts",
        "_paused",
        "_slices",
        "_slot",
        "_transport",
        "_ws",
        "session",
        "since",
    )

    def __init__(self, door: Door, server_state: "ServerState", slot: ConnectionSlot) -> None:
        self._door = door
        self._slot = slot
        self._others = server_state.connections
        self._ws = ServerProtocol(max_size=door.sessions.limits.max_message, logger=_quiet)
        self._transport: asyncio.Transport
        self._owner = b""
        self._parts: bytearray | None = None
        """The beginning of a message that arrives in several frames."""
        self._held = 0
        """Bytes of frames or messages that have arrived in part."""
        self._events: deque[Event] = deque()
        """Data that was read and waits until the client reads its answers."""
        self._paused = False
        self._first_hello: Hello | None = None
        self.session: ServerSession | None = None
        self.since = asyncio.get_running_loop().time()

    # ------------------------------------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._slices = Slices(self._transport, self._take, lambda: not self._paused, lambda: not self._paused)
        self._others.add(self)  # type: ignore[arg-type,unused-ignore]
        self._door.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._slices.receive(data)
        if self._held or self._slices.waiting:
            self._count_unfinished()

    def _take(self, data: bytes) -> None:
        try:
            self._ws.receive_data(data)
            self._events.extend(self._ws.events_received())
            self._work()
            if self._held or self._parts is not None or self._events or self._ws.reader.buffer:
                self._count_unfinished()
        except Exception:  # noqa: BLE001 - an internal error closes this connection alone, and is logged
            self._give_up()

    def _give_up(self) -> None:
        """Close this connection after an internal error. Other connections are not affected."""
        _peers.warning("a connection was closed because its data could not be handled", exc_info=True)
        self._forget()
        self._transport.abort()

    def _work(self) -> None:
        """Answer what was read, as long as the client reads the answers."""
        events = self._events
        while events and not self._paused:
            if self._transport.is_closing():  # the client is gone, and asyncio logs every further write
                events.clear()
                return
            event = events.popleft()
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, Request):
                self._handshake(event)
            if events:
                self._flush()  # may pause this connection if the client does not read
        self._flush()

    def _count_unfinished(self) -> None:
        shares, held = self._door.sessions.unfinished, self._held
        waiting = self._slices.waiting + EVENT_BYTES * len(self._events)
        self._held = waiting + len(self._ws.reader.buffer) + len(self._parts or b"")
        if self._held <= held or shares.room(self._owner, self._held - held):
            shares.take(self._owner, self._held - held)
            return
        # What arrived is dropped at once, so that other connections of the token go on.
        shares.give_back(self._owner, held)
        self._held = 0
        self._parts = None
        self._events.clear()
        self._slices.close()
        self._ws.reader.buffer.clear()
        self.shut(TRY_LATER, f"incomplete frames of this token exceed its share, {shares.share} bytes (max_unfinished)")

    def eof_received(self) -> None:
        self._ws.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self._paused = True
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._paused = False
        try:
            self._work()
        except Exception:  # noqa: BLE001 - an internal error closes this connection alone, and is logged
            return self._give_up()
        if not self._paused:
            self._slices.resume()
        return None

    def connection_lost(self, error: Exception | None) -> None:
        self._forget()

    def _forget(self) -> None:
        self._slices.close()
        self._slot.free()
        self._door.sessions.unfinished.give_back(self._owner, self._held)
        self._held = 0
        self._others.discard(self)
        self._door.connections.discard(self)
        if self.session is not None and self.session.deliver == self.send:
            self.session.deliver = None

    def shutdown(self) -> None:
        """Called by uvicorn when the server stops."""
        self.shut(GOING_AWAY, "the server stops")

    # ----------------------------------------------------------------------------------------------------------- frames

    def send(self, frame: bytes) -> None:
        """Send one frame if the connection is still open."""
        if self._ws.state is State.OPEN:
            self._ws.send_binary(frame)
            self._flush()

    def shut(self, code: int, reason: str) -> None:
        """Start the closing handshake, and close the connection even if the client does not answer it."""
        if self._ws.state is State.OPEN:
            self._ws.send_close(code, reason)
            self._flush()
        if self._paused:  # a client that does not read its answers does not read this either
            self._transport.abort()
        else:
            self._close()

    def _close(self) -> None:
        self._transport.close()
        if self._transport.get_write_buffer_size():  # a client that does not read must not keep the connection open
            asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._transport.abort)

    def _flush(self) -> None:
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._close()

    def _handshake(self, request: Request) -> None:
        response = self._ws.accept(request)
        owner = self._door.tokens.owner(request.headers.get_all("Authorization"))
        if owner is None:
            self._door.sessions.metrics.refused += 1
            response = self._ws.reject(401, "Exactly one bearer token is required: Authorization: Bearer …\n")
        elif request.path.partition("?")[0] != PATH:
            response = self._ws.reject(404, f"The WebSocket is at {PATH}.\n")
        elif not self._slot.authenticate(owner):
            response = self._ws.reject(503, "This token has reached its limit of connections.\n")
        else:
            self._owner = owner
        self._ws.send_response(response)

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY and frame.fin:
            self._message(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._parts = None
            self._refuse(Code.BAD_FRAME, "frames must be binary: msgpack")
        elif frame.opcode is Opcode.BINARY:
            self._parts = bytearray(frame.data)
        elif frame.opcode is Opcode.CONT and self._parts is not None:
            self._parts += frame.data
            if frame.fin:
                parts, self._parts = self._parts, None
                self._message(bytes(parts))

    def _message(self, data: bytes) -> None:
        try:
            answer = self._answer(decode_frame(data, FromClient), len(data))
        except SchemaError as error:
            return self._refuse(Code.BAD_FRAME, str(error))
        except Exception:  # noqa: BLE001 - an internal error must neither close the connection nor be described to the client
            _log.exception("a frame could not be answered")
            return self._refuse(Code.INTERNAL, "the server failed; the reason is in its log")
        if answer and self._ws.state is State.OPEN:
            self._ws.send_binary(answer)
        return None

    def _answer(self, frame: CallFrame | Beat | Hello, size: int) -> bytes:
        if isinstance(frame, Hello):
            return self._hello(frame)
        session = self.session
        if session is None:
            raise SchemaError("the first frame must be Hello")
        if isinstance(frame, CallFrame):
            return self._door.sessions.take(session, frame, size)
        self._door.sessions.renew(session)
        return encode_frame(frame)

    def _hello(self, hello: Hello) -> bytes:
        if self.session is not None:
            if hello != self._first_hello:
                raise SchemaError("one connection carries one session")
            hello = msgspec.structs.replace(hello, session=self.session.id)  # the same Hello arrived twice
        answer = self._door.sessions.hello(self._owner, hello)
        if isinstance(answer, Fault):
            return encode_frame(answer)
        session, welcome = answer
        self._first_hello = self._first_hello or hello
        earlier, session.deliver = session.deliver, self.send
        self.session = session
        if isinstance(owner := getattr(earlier, "__self__", None), Connection) and owner is not self:
            owner.shut(SUPERSEDED, "resumed elsewhere")
        return encode_frame(welcome)

    def _refuse(self, code: Code, message: str) -> None:
        self._door.sessions.metrics.faults[code] += 1
        if self._ws.state is State.OPEN:
            self._ws.send_binary(encode_frame(Fault(code=code, message=message)))
