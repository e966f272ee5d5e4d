"""The client's end of one WebSocket: it says Hello, carries one call at a time, and detects a silent peer.

A link is never repaired: when it breaks, its owner opens another one and resumes the session there. Every frame of the server
is decoded into known types or refused; no frame can name code.
"""

import asyncio
import contextlib
import ssl
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidMessage, InvalidStatus, WebSocketException

from palestra.adapters.ownership import cancel_guarded, guarded_task
from palestra.errors import SchemaError, UsageError
from palestra.serve.wire import (
    PATH,
    PROTOCOL_VERSION,
    Beat,
    CallFrame,
    Fault,
    FromServer,
    Hello,
    ReplyFrame,
    Welcome,
    decode_frame,
    encode_frame,
)

__all__ = ["SILENT_BEATS", "Broken", "HelloRefused", "ServerLink"]

SILENT_BEATS = 2.5
"""Heartbeats without any frame after which the peer counts as dead."""


FASTEST_BEAT, SLOWEST_BEAT = 0.05, 600.0
"""Bounds of the heartbeat that a server may ask for, in seconds."""


class Broken(Exception):
    """The connection is lost; a new one may work."""


class HelloRefused(Exception):
    """The server answered Hello with a fault."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


class _Connect(connect):
    def process_redirect(self, exc: Exception) -> Exception | str:
        return exc  # the token must reach only the server that it was meant for


class ServerLink:
    """One connection on which the server has answered Hello with Welcome."""

    def __init__(self, socket: ClientConnection, welcome: Welcome) -> None:
        self._socket = socket
        self.welcome = welcome
        self.heartbeat = min(max(welcome.heartbeat, FASTEST_BEAT), SLOWEST_BEAT)
        self._loop = asyncio.get_running_loop()
        self._heard = self._loop.time()
        self._seq = 0
        self._requests: set[int] = set()
        self._answer: asyncio.Future[ReplyFrame | Fault] | None = None
        self.answer_size = 0
        """Size of the last answer in bytes."""
        self.broken: Exception | None = None
        self._ear = guarded_task(self._listen())  # the episodes of a process share its loop

    @classmethod
    async def open(cls, url: str, token: str, hello: Hello, seconds: float) -> "ServerLink":
        """Connect and say Hello. Raise ``Broken`` if a later attempt may work, ``HelloRefused`` if the server declined."""
        try:
            async with asyncio.timeout(seconds):
                socket = await _connected(url, token, hello.max_message)
                try:
                    welcome = await _welcomed(socket, hello)
                except BaseException:
                    await _hang_up(socket)
                    raise
        except TimeoutError:
            raise Broken(f"no Welcome within {seconds:.1f} s") from None
        except (OSError, ConnectionClosed, InvalidMessage) as error:
            raise Broken(f"{type(error).__name__}: {error}") from error
        return cls(socket, welcome)

    async def ask(self, call: CallFrame, until: float) -> ReplyFrame | Fault:
        """Send ``call`` until it is answered. Raise ``Broken`` if the connection is lost or silent, or at time ``until``."""
        answer: asyncio.Future[ReplyFrame | Fault] = self._loop.create_future()
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

    async def send(self, frame: CallFrame | Beat) -> None:
        """Send one frame."""
        if self.broken is not None:
            raise self.broken
        try:
            async with asyncio.timeout(self.heartbeat * SILENT_BEATS):
                await self._socket.send(encode_frame(frame))
        except (OSError, ConnectionClosed) as error:
            raise Broken(f"{type(error).__name__}: {error}") from error

    async def beat(self) -> None:
        """Renew the lease, and detect a peer that is gone."""
        self._check_silence()
        await self.send(Beat())

    async def close(self) -> None:
        """Close the connection."""
        self._fail(Broken("closed by this client"))
        cancel_guarded(self._ear)
        await _hang_up(self._socket)

    def _check_silence(self) -> None:
        silence = self._loop.time() - self._heard
        if silence > self.heartbeat * SILENT_BEATS:
            raise Broken(f"no frame arrived for {silence:.1f} s")

    async def _listen(self) -> None:
        try:
            async for message in self._socket:
                self._heard = self._loop.time()
                if isinstance(message, str):
                    raise SchemaError("the server sent a text frame; frames must be binary")
                self._hear(decode_frame(message, FromServer), len(message))
            self._fail(Broken("the server closed the connection"))
        except (SchemaError, WebSocketException, OSError) as error:
            self._fail(error if isinstance(error, SchemaError) else Broken(f"{type(error).__name__}: {error}"))

    def _hear(self, frame: Any, size: int) -> None:
        if isinstance(frame, Beat | Welcome) or self._answer is None or self._answer.done():
            return
        # Ignore late, repeated and foreign answers: both numbers must match the call that waits.
        if frame.seq == self._seq and frame.request in self._requests:
            self.answer_size = size
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
            max_queue=4,  # frames not yet taken; everything but an answer is discarded
            ping_interval=None,
            open_timeout=None,
            close_timeout=1,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        if status == 401:
            raise UsageError(f"{url} refused the token: check PALESTRA_TOKEN, or pass make(…, token=…)") from None
        if status >= 500 or status == 429:
            raise OSError(f"{url} answered {status}") from error
        raise UsageError(f"{url} is not an environment server: it answered {status}") from None
    except ssl.SSLCertVerificationError as error:
        raise UsageError(
            f"the certificate of {url} is not trusted here ({error.verify_message}). "
            f"For a private authority set SSL_CERT_FILE to its certificate: SSL_CERT_FILE=ca.pem palestra …"
        ) from None
    except InvalidMessage:
        raise
    except InvalidHandshake as error:
        raise UsageError(f"{url} is not an environment server: {error}") from None


async def _welcomed(socket: ClientConnection, hello: Hello) -> Welcome:
    await socket.send(encode_frame(hello))
    message = await socket.recv()
    if isinstance(message, str):
        raise SchemaError("the server sent a text frame; frames must be binary")
    frame = decode_frame(message, FromServer)
    if isinstance(frame, Fault):
        raise HelloRefused(frame)
    if not isinstance(frame, Welcome) or frame.version != PROTOCOL_VERSION:
        raise SchemaError(f"the server sent {type(frame).__name__}; expected a Welcome of version {PROTOCOL_VERSION}")
    return frame


async def _hang_up(socket: ClientConnection) -> None:
    with contextlib.suppress(Exception):
        await socket.close()
