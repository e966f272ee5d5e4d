"""The client's end of one WebSocket: a Hello that was welcomed, one call at a time, and an ear for silence.

A link is good until it breaks, and never mended: whoever holds it opens another and resumes the session there. Whatever a
server sends is decoded into known types or refused; nothing in it names code.
"""

import asyncio
import contextlib
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus, WebSocketException

from palestra.errors import SchemaError, UsageError
from palestra.serve.wire import (
    PATH,
    PROTOCOL_VERSION,
    Beat,
    Call,
    Fault,
    FromServer,
    Hello,
    Reply,
    Welcome,
    decode_frame,
    encode_frame,
)

__all__ = ["SILENT_BEATS", "Broken", "Link", "Refused"]

SILENT_BEATS = 2.5
"""Heartbeats without a sound after which the other end is taken for dead."""


FASTEST_BEAT, SLOWEST_BEAT = 0.05, 600.0
"""Bounds of the heartbeat a server may ask for, in seconds."""


class Broken(Exception):
    """The connection is of no use any more; another may be."""


class Refused(Exception):
    """The server answered Hello with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc  # a token goes to the server it was meant for


class Link:
    """One connection that has been welcomed."""

    def __init__(self, socket: ClientConnection, welcome: Welcome) -> None:
        self._socket = socket
        self.welcome = welcome
        self.heartbeat = min(max(welcome.heartbeat, FASTEST_BEAT), SLOWEST_BEAT)
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._seq = 0
        self._requests: set[int] = set()
        self._answer: asyncio.Future[Reply | Fault] | None = None
        self.broken: Exception | None = None
        self._ear = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, url: str, token: str, hello: Hello, seconds: float) -> "Link":
        """Connect and say hello. ``Broken`` if that may work later, ``Refused`` if the server said no."""
        try:
            async with asyncio.timeout(seconds):
                socket = await _connected(url, token, hello.max_message)
                try:
                    welcome = await _welcomed(socket, hello)
                except BaseException:
                    await _hang_up(socket)
                    raise
        except TimeoutError:
            raise Broken(f"no welcome within {seconds:.1f} s") from None
        except (OSError, ConnectionClosed, InvalidMessage) as error:
            raise Broken(f"{type(error).__name__}: {error}") from None
        return cls(socket, welcome)

    async def ask(self, call: Call, until: float) -> Reply | Fault:
        """Send ``call`` until it is answered. ``Broken`` if the connection is lost or silent, or time is up."""
        answer: asyncio.Future[Reply | Fault] = self._loop.create_future()
        self._seq, self._requests, self._answer = call.seq, set(), answer
        try:
            while (left := until - self._loop.time()) > 0:
                self._requests.add(call.request)
                await self.send(call)
                await asyncio.wait([answer], timeout=min(self.heartbeat, left))
                if answer.done():
                    return answer.result()
                self._check_silence()
                call = msgspec.structs.replace(call, request=call.request + 1)
        finally:
            self._answer = None
        raise Broken("no answer in time")

    async def send(self, frame: Call | Beat) -> None:
        """Send one frame."""
        if self.broken is not None:
            raise self.broken
        try:
            async with asyncio.timeout(self.heartbeat * SILENT_BEATS):
                await self._socket.send(encode_frame(frame))
        except (OSError, ConnectionClosed) as error:
            raise Broken(f"{type(error).__name__}: {error}") from None

    async def beat(self) -> None:
        """Keep the lease, and notice if the other end is gone."""
        self._check_silence()
        await self.send(Beat())

    async def close(self) -> None:
        """Hang up."""
        self._fail(Broken("closed here"))
        self._ear.cancel()
        await _hang_up(self._socket)

    def _check_silence(self) -> None:
        silence = self._loop.time() - self._heard
        if silence > self.heartbeat * SILENT_BEATS:
            raise Broken(f"nothing heard for {silence:.1f} s")

    async def _listen(self) -> None:
        try:
            async for message in self._socket:
                self._heard = self._loop.time()
                if isinstance(message, str):
                    raise SchemaError("a text frame; frames are binary")
                self._hear(decode_frame(message, FromServer))
            self._fail(Broken("the server hung up"))
        except (SchemaError, WebSocketException, OSError) as error:
            self._fail(error if isinstance(error, SchemaError) else Broken(f"{type(error).__name__}: {error}"))

    def _hear(self, frame: Any) -> None:
        if isinstance(frame, Beat | Welcome) or self._answer is None or self._answer.done():
            return
        # Late, repeated and foreign answers are for nobody: both numbers must be those of the call that waits.
        if frame.seq == self._seq and frame.request in self._requests:
            self._answer.set_result(frame)

    def _fail(self, error: Exception) -> None:
        self.broken = self.broken or error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


async def _connected(url: str, token: str, max_message: int) -> ClientConnection:
    scheme, _, rest = url.partition("://")
    address = f"{'wss' if scheme in ('https', 'wss') else 'ws'}://{rest.rstrip('/')}{PATH}"
    try:
        return await _Connect(
            address,
            additional_headers={"Authorization": f"Bearer {token}"},
            compression=None,
            max_size=max_message,
            ping_interval=None,
            open_timeout=None,
            close_timeout=1,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 401:
            raise UsageError(f"{url} refused the token") from None
        if status >= 500 or status == 429:
            raise OSError(f"{url} answered {status}") from None
        raise UsageError(f"{url} is no environment server: it answered {status}") from None
    except InvalidMessage:
        raise
    except InvalidHandshake as error:
        raise UsageError(f"{url} is no environment server: {error}") from None


async def _welcomed(socket: ClientConnection, hello: Hello) -> Welcome:
    await socket.send(encode_frame(hello))
    message = await socket.recv()
    if isinstance(message, str):
        raise SchemaError("a text frame; frames are binary")
    frame = decode_frame(message, FromServer)
    if isinstance(frame, Fault):
        raise Refused(frame)
    if not isinstance(frame, Welcome) or frame.version != PROTOCOL_VERSION:
        raise SchemaError(f"a {type(frame).__name__} where a Welcome of version {PROTOCOL_VERSION} was due")
    return frame


async def _hang_up(socket: ClientConnection) -> None:
    with contextlib.suppress(Exception):
        await socket.close()
