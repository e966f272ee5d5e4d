"""One WebSocket, from its handshake to its end: bytes in, frames to the session, bytes out.

It stands directly on asyncio and on the I/O-free half of ``websockets``, without a task or a queue per connection: what arrives
is answered in the same turn of the event loop, or by the task of a call that takes its time. Ten thousand idle sessions cost
memory and nothing else.

A client that does not read is not read from either, so that what waits for it stays bounded.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Any, cast

import msgspec
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from palestra.errors import SchemaError
from palestra.serve.sessions import Session, Sessions
from palestra.serve.tokens import Tokens
from palestra.serve.wire import PATH, Beat, Call, Code, Fault, FromClient, Hello, decode_frame, encode_frame

if TYPE_CHECKING:
    from uvicorn.server import ServerState

__all__ = ["GOING_AWAY", "LEASE_OVER", "SUPERSEDED", "Connection", "Door"]

_log = logging.getLogger("palestra.serve")
_quiet = logging.getLogger("palestra.serve.websocket")
_quiet.setLevel(logging.WARNING)  # it asks for its level once per connection, and each frame costs less for it

GOING_AWAY = 1001
SUPERSEDED = 4001
"""The session was resumed on another connection."""
LEASE_OVER = 4002
"""The session's lease ran out, or no Hello came in time."""

FAREWELL_SECONDS = 5.0
"""How long a connection may take to say goodbye."""


class Door:
    """What all connections of a server share."""

    def __init__(self, sessions: Sessions, tokens: Tokens) -> None:
        self.sessions = sessions
        self.tokens = tokens
        self.connections: set[Connection] = set()

    def connect(self, *, server_state: "ServerState", **_: Any) -> "Connection":
        """What uvicorn calls when somebody asks for a WebSocket."""
        return Connection(self, server_state)

    def sweep(self) -> None:
        """End what nobody speaks for any more."""
        gone = set(self.sessions.expire())
        too_old = asyncio.get_running_loop().time() - self.sessions.limits.ttl
        for connection in list(self.connections):
            session = connection.session
            if session in gone or (session is None and connection.since < too_old):
                connection.shut(LEASE_OVER, "the lease ran out")


class Connection(asyncio.Protocol):
    """One client's WebSocket."""

    __slots__ = ("_door", "_hello_said", "_others", "_owner", "_parts", "_transport", "_ws", "session", "since")

    def __init__(self, door: Door, server_state: "ServerState") -> None:
        self._door = door
        self._others = server_state.connections
        self._ws = ServerProtocol(max_size=door.sessions.limits.max_message, logger=_quiet)
        self._transport: asyncio.Transport
        self._owner = b""
        self._parts: list[bytes] = []
        self._hello_said: Hello | None = None
        self.session: Session | None = None
        self.since = asyncio.get_running_loop().time()

    # ------------------------------------------------------------------------------------------------ what asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._others.add(self)  # type: ignore[arg-type]
        self._door.connections.add(self)

    def data_received(self, data: bytes) -> None:
        self._ws.receive_data(data)
        for event in self._ws.events_received():
            if isinstance(event, Frame):
                self._frame(event)
            elif isinstance(event, Request):
                self._handshake(event)
        self._flush()

    def eof_received(self) -> None:
        self._ws.receive_eof()
        self._flush()

    def pause_writing(self) -> None:
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._others.discard(self)
        self._door.connections.discard(self)
        if self.session is not None and self.session.deliver == self.send:
            self.session.deliver = None

    def shutdown(self) -> None:
        """The server stops."""
        self.shut(GOING_AWAY, "the server stops")

    # ----------------------------------------------------------------------------------------------------------- frames

    def send(self, frame: bytes) -> None:
        """Send one frame, if there is still somebody to send it to."""
        if self._ws.state is State.OPEN:
            self._ws.send_binary(frame)
            self._flush()

    def shut(self, code: int, reason: str) -> None:
        """Say goodbye, and hang up whether or not it is answered."""
        if self._ws.state is State.OPEN:
            self._ws.send_close(code, reason)
            self._flush()
        self._transport.close()
        asyncio.get_running_loop().call_later(FAREWELL_SECONDS, self._transport.abort)

    def _flush(self) -> None:
        for data in self._ws.data_to_send():
            if data:
                self._transport.write(data)
            else:
                self._transport.close()

    def _handshake(self, request: Request) -> None:
        response = self._ws.accept(request)
        owner = self._door.tokens.owner(request.headers.get("Authorization"))
        if owner is None:
            self._door.sessions.metrics.refused += 1
            response = self._ws.reject(401, "A bearer token is needed: Authorization: Bearer …\n")
        elif request.path.partition("?")[0] != PATH:
            response = self._ws.reject(404, f"The WebSocket is at {PATH}.\n")
        else:
            self._owner = owner
        self._ws.send_response(response)

    def _frame(self, frame: Frame) -> None:
        if frame.opcode is Opcode.BINARY and frame.fin:
            self._message(bytes(frame.data))
        elif frame.opcode is Opcode.TEXT:
            self._parts = []
            self._refuse(Code.BAD_FRAME, "frames are binary: msgpack")
        elif frame.opcode is Opcode.BINARY:
            self._parts = [bytes(frame.data)]
        elif frame.opcode is Opcode.CONT and self._parts:
            self._parts.append(bytes(frame.data))
            if frame.fin:
                parts, self._parts = self._parts, []
                self._message(b"".join(parts))

    def _message(self, data: bytes) -> None:
        try:
            answer = self._answer(decode_frame(data, FromClient))
        except SchemaError as error:
            return self._refuse(Code.BAD_FRAME, str(error))
        except Exception:  # a fault of ours must not cost the connection, or be told in detail
            _log.exception("a frame could not be answered")
            return self._refuse(Code.INTERNAL, "the server failed; its log says why")
        if answer and self._ws.state is State.OPEN:
            self._ws.send_binary(answer)
        return None

    def _answer(self, frame: Call | Beat | Hello) -> bytes:
        if isinstance(frame, Hello):
            return self._hello(frame)
        session = self.session
        if session is None:
            raise SchemaError("say hello first")
        if isinstance(frame, Call):
            return self._door.sessions.take(session, frame)
        self._door.sessions.renew(session)
        return encode_frame(frame)

    def _hello(self, hello: Hello) -> bytes:
        if self.session is not None:
            if hello != self._hello_said:
                raise SchemaError("one connection carries one session")
            hello = msgspec.structs.replace(hello, session=self.session.id)  # the same frame, arrived twice
        found = self._door.sessions.hello(self._owner, hello)
        if isinstance(found, Fault):
            return encode_frame(found)
        session, welcome = found
        self._hello_said = self._hello_said or hello
        earlier, session.deliver = session.deliver, self.send
        self.session = session
        if isinstance(owner := getattr(earlier, "__self__", None), Connection) and owner is not self:
            owner.shut(SUPERSEDED, "resumed elsewhere")
        return encode_frame(welcome)

    def _refuse(self, code: Code, message: str) -> None:
        self._door.sessions.metrics.faults[code] += 1
        if self._ws.state is State.OPEN:
            self._ws.send_binary(encode_frame(Fault(code=code, message=message)))
