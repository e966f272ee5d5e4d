"""One HTTP request to the gateway and its answer, under limits against clients that send too much or too slowly."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from palestra.agents.graph import Call
from palestra.agents.holdings import Hold
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import BadRequest, too_large

__all__ = ["Exchange", "Receive", "Scope", "Send", "check_values", "send_json", "send_text"]

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_CHUNK = 16384
"""Bytes of events per write. A client that reads slowly is noticed between two writes."""
_JSON = b"application/json"
GONE = 499
"""The status of a request whose client went away before it was answered. It appears only in the metrics."""


_OTHERS = bytes(set(range(256)) - set(b"[{,"))
_PART = 2**16
"""Bytes of a request whose structure is counted at a time."""


async def check_values(body: bytes, most: int) -> None:
    """Raise ``BadRequest`` if ``body`` has more than ``most`` arrays, objects and commas outside of its strings.

    A JSON decoder makes an object for each of them in one step that nothing interrupts, so they are counted before. Counting
    the marks of the complete body is quick, and most bodies have few. Otherwise strings are told from structure, part by part;
    the event loop gets its turns in between.
    """
    if len(body) <= most or _marks(body) <= most:
        return
    marks = quotes = 0
    rest = b""
    for start in range(0, len(body), _PART):
        part = rest + body[start : start + _PART]
        closed = part.rstrip(b"\\")
        # Two backslashes are one escaped one; a last one escapes what the next part begins with.
        rest = b"\\" if (len(part) - len(closed)) % 2 else b""
        texts = closed.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        marks += _marks(b"".join(texts[quotes % 2 :: 2]))  # every second text is outside of the strings
        quotes += len(texts) - 1
        if marks > most or quotes > 4 * most + 2:  # a field has a name and a value
            raise too_large(f"the request's JSON has more than {most} arrays, objects and commas (GatewayLimits.values)")
        await asyncio.sleep(0)


def _marks(data: bytes) -> int:
    return len(data.translate(None, _OTHERS))


class Exchange:
    """One request and its answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope = scope
        self.receive = receive
        self.status = GONE
        """The status of the answer, for the metrics. A stream that fails after its headers gets the status of its error."""
        self._send = send

    async def send(self, event: MutableMapping[str, Any]) -> None:
        """Send an ASGI event of the answer."""
        if event["type"] == "http.response.start":
            self.status = event["status"]
        await self._send(event)

    def header(self, name: bytes) -> str:
        return next((value.decode("latin-1") for key, value in self.scope["headers"] if key == name), "")

    async def body(self, limits: GatewayLimits, hold: Hold) -> bytes:
        """Return the body of the request. Its bytes are counted in ``hold`` as they arrive, twice because they are joined."""
        body = bytearray()
        try:
            async with asyncio.timeout(limits.read_seconds):
                while True:
                    event = await self.receive()
                    if event["type"] == "http.disconnect":
                        raise BadRequest("the client went away", status=400)
                    part = event.get("body", b"")
                    if len(body) + len(part) > limits.body:
                        raise too_large(f"the body is larger than {limits.body} bytes (GatewayLimits.body)")
                    hold.add(2 * len(part))
                    body += part
                    if not event.get("more_body", False):
                        break
        except TimeoutError:
            text = f"the body took longer than {limits.read_seconds:g} s (GatewayLimits.read_seconds)"
            raise BadRequest(text, status=408, code="timeout") from None
        return bytes(body)

    async def deliver(self, body: bytes, call: Call | None, seconds: float) -> None:
        """Send a whole answer, and mark its call as delivered if the client is still there.

        Raise ``TimeoutError`` if the client does not take it: the server then closes it.
        """
        if not await self._gone():
            async with asyncio.timeout(seconds):
                await send_json(self.send, 200, body)
            _mark(call)

    async def start(self) -> None:
        """Send the headers of a stream."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        await self.send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, data: bytes, seconds: float, *, last: bool = False) -> None:
        """Send a piece of a stream. Raise ``TimeoutError`` if the client does not take it: the server then closes it."""
        async with asyncio.timeout(seconds):
            await self.send({"type": "http.response.body", "body": data, "more_body": not last})

    async def deliver_stream(self, events: bytes, call: Call | None, seconds: float) -> None:
        """Send the events of a reply, and mark its call as delivered if the client is still there."""
        if await self._gone():
            return
        for start in range(0, len(events), _CHUNK):
            await self.write(events[start : start + _CHUNK], seconds)
        _mark(call)
        await self.write(b"", seconds, last=True)

    async def _gone(self) -> bool:
        """Whether the client has closed the connection."""
        waiting = asyncio.ensure_future(self.receive())
        await asyncio.sleep(0)
        if waiting.done():
            return bool(waiting.result()["type"] == "http.disconnect")
        waiting.cancel()
        return False


def _mark(call: Call | None) -> None:
    if call is not None:
        call.delivered = True


async def send_json(send: Send, status: int, body: bytes, more: Mapping[bytes, bytes] | None = None) -> None:
    """Send a whole answer; ``more`` holds further headers."""
    headers = {b"content-type": _JSON, **(more or {})}
    if status == 401:
        headers[b"www-authenticate"] = b"Bearer"
    await _send_whole(send, status, body, headers)


async def send_text(send: Send, text: str, content_type: str) -> None:
    """Send a whole answer that is not JSON."""
    await _send_whole(send, 200, text.encode(), {b"content-type": content_type.encode()})


async def _send_whole(send: Send, status: int, body: bytes, headers: Mapping[bytes, bytes]) -> None:
    complete = [*headers.items(), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": complete})
    await send({"type": "http.response.body", "body": body})
