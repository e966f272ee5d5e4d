"""Ways of one token to make a server hold memory or its event loop. None gets beyond the documented bounds."""

import asyncio
import contextlib
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from palestra.serve import EnvServer, ServerLimits, wire
from palestra.trajectory import Task
from tests.hoarding import MEGABYTE, Child, Watch, check, child, obey, pour, raw, ways
from tests.serve.tally import REFERENCE

LIMITS = ServerLimits(max_remembered=16 * MEGABYTE, max_unfinished=8 * MEGABYTE, max_sessions=4000, head=2.0, ttl=5.0)
BOUND = 16 + 8 + 64 + 17 * 2000 / 1024
"""Megabytes: what is remembered and unfinished, the sessions of one token, and what decoder and allocator take beside them."""
TOKEN, OTHER = "mine-0123456789-abcdefghij", "other-0123456789-abcdefghij"
"""The child process imports this module anew, so they are not random."""


def serve(pipe: Any) -> None:
    asyncio.run(_serve(pipe))


async def _serve(pipe: Any) -> None:
    async with EnvServer(REFERENCE, [TOKEN, OTHER], limits=LIMITS) as server:

        async def honest() -> None:
            opened = server.sessions.hello(b"other", wire.Hello((1,), REFERENCE))
            assert not isinstance(opened, wire.Fault)
            verbs: list[wire.Verb] = [wire.ResetFrame(Task(REFERENCE, 1)), wire.StepFrame("a"), wire.Close()]
            for seq, verb in enumerate(verbs, 1):
                server.sessions.take(opened[0], wire.CallFrame(seq, seq, 10.0, verb))

        async def address(_: Any) -> str:
            return server.url

        async def ended(_: Any) -> None:
            await asyncio.sleep(0.1)
            for session in list(server.sessions._table.values()):
                server.sessions.end(session)
            await server.sessions._runner.all_closed()

        def counted() -> int:
            return server.sessions._remembered.held + server.sessions.unfinished.held

        gc.freeze()  # as ``palestra serve`` does
        await obey(pipe, Watch(honest, counted), {"url": address, "end": ended})


@pytest.fixture(scope="module")
def server() -> Iterator[Child]:
    with child(serve) as running:
        yield running


# -------------------------------------------------------------------------------------------------------------------- the ways

Way = Callable[[str], Awaitable[None]]
HELLO = wire.encode_frame(wire.Hello((1,), REFERENCE))


def frame(payload: bytes, opcode: int = 0x82) -> bytes:
    length = len(payload)
    head = bytes((opcode, 0x80 | length)) if length < 126 else bytes((opcode, 0xFF)) + length.to_bytes(8, "big")
    return head + b"\0\0\0\0" + payload


def called(seq: int, verb: wire.Verb) -> bytes:
    return wire.encode_frame(wire.CallFrame(seq, seq, 10.0, verb))


@contextlib.asynccontextmanager
async def dialed(url: str) -> AsyncIterator[ClientConnection]:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    address = url.replace("http", "ws") + wire.PATH
    async with connect(
        address, additional_headers=headers, compression=None, ping_interval=None, proxy=None, close_timeout=0.1
    ) as socket:
        yield socket


async def session(socket: ClientConnection, *verbs: wire.Verb) -> None:
    for data in (HELLO, *(called(seq, verb) for seq, verb in enumerate(verbs, 1))):
        await socket.send(data)
        wire.decode_frame(bytes(await socket.recv()), wire.FromServer)  # type: ignore[arg-type,unused-ignore]


def sessions(count: int, size: int, steps: int = 1, char: str = "x") -> Way:
    """Sessions that each take steps of ``size`` characters; the environment repeats them in its answer."""

    async def way(url: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for number in range(count):
                socket = await stack.enter_async_context(dialed(url))
                actions = [wire.StepFrame(f"{number} {step}" + char * size) for step in range(steps)]
                await session(socket, wire.ResetFrame(Task(REFERENCE, number)), *actions)

    return way


def poured(data: Callable[[], bytes], connections: int = 4, begun: bool = True) -> Way:
    """Bytes as they are, behind a handshake and, if ``begun``, an episode."""

    async def way(url: str) -> None:
        written = data()
        for _ in range(connections):
            async with dialed(url) as socket:
                if begun:
                    await session(socket, wire.ResetFrame(Task(REFERENCE, 1)))
                socket.transport.pause_reading()
                for start in range(0, len(written), MEGABYTE):
                    socket.transport.write(written[start : start + MEGABYTE])
                await asyncio.sleep(0.3)
                socket.transport.abort()

    return way


def kept_open(data: bytes, connections: int) -> Way:
    async def way(url: str) -> None:
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(connections):
                socket = await stack.enter_async_context(dialed(url))
                socket.transport.write(data)
            await asyncio.sleep(0.5)

    return way


def posted(path: str, body: bytes, connections: int, *, read: bool = True, length: int | None = None) -> Way:
    async def way(url: str) -> None:
        lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}"]
        head = "\r\n".join([*lines, f"Content-Length: {len(body) if length is None else length}", "", ""]).encode()
        async with contextlib.AsyncExitStack() as stack:
            for _ in range(connections):
                reader, writer = await stack.enter_async_context(raw(url))
                await pour(writer, head + body, 0.5)
                if read:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1000), 2)

    return way


async def unread_answers(url: str) -> None:
    """One session's large answer, asked for again and again by HTTP connections that do not read."""
    opened = wire.encode_json_frame(wire.Hello((1,), REFERENCE))

    async def post(path: str, body: bytes) -> bytes:
        async with raw(url) as (reader, writer):
            lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {TOKEN}", "Connection: close"]
            writer.write("\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body)
            return (await reader.read()).partition(b"\r\n\r\n")[2]

    path = f"/v1/sessions/{json.loads(await post('/v1/sessions', opened))['session']}/calls"
    await post(path, wire.encode_json_frame(wire.CallFrame(1, 1, 10.0, wire.ResetFrame(Task(REFERENCE, 1)))))
    await post(path, body := wire.encode_json_frame(wire.CallFrame(2, 2, 10.0, wire.StepFrame("x" * 1_000_000))))
    await posted(path, body, 60, read=False)(url)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def resets(seq: int, lists: int) -> bytes:
    task = {"env": REFERENCE, "params": {"x": [[]] * lists}}
    call = {"type": "call", "seq": seq, "request": 1, "deadline": 5.0, "verb": {"type": "reset", "task": task}}
    return msgspec.msgpack.encode(call)


WAYS: dict[str, Way] = {
    "small actions": sessions(400, 100),
    "actions of 60 kB": sessions(300, 60_000),
    "actions of wide characters": sessions(100, 60_000, char="🎲"),
    "actions of a megabyte": sessions(30, 1_000_000),
    "actions that grow": sessions(20, 300_000, 4),
    "an action above the limit": sessions(10, 2_000_000),
    "a reset of empty lists": poured(lambda: frame(resets(1, 3_000_000)), begun=False),
    "small resets of empty lists": poured(lambda: frame(HELLO) + frame(resets(2, 30_000)) * 60),
    "no frame": poured(lambda: frame(b"\x91" * 4_000_000)),
    "a hello of many versions": poured(
        lambda: frame(msgspec.msgpack.encode({"type": "hello", "versions": [1] * 3_000_000})), begun=False
    ),
    "frames that do not end": kept_open(frame(b"x" * 4_000_000)[:-10], 40),
    "fragments of a byte": kept_open(frame(b"x", 0x02) + frame(b"x", 0x00) * 400_000, 6),
    "empty fragments": kept_open(frame(b"x", 0x02) + frame(b"", 0x00) * 400_000, 6),
    "tiny pings": poured(lambda: frame(b"", 0x89) * 400_000),
    "tiny messages": poured(lambda: frame(b"\x80") * 300_000),
    "text frames": poured(lambda: frame(b"{}", 0x81) * 200_000),
    "beats": poured(lambda: frame(msgspec.msgpack.encode({"type": "beat"})) * 100_000),
    "hellos": poured(lambda: frame(HELLO) * 50_000),
    "steps at once": poured(lambda: b"".join(frame(called(seq, wire.StepFrame("a"))) for seq in range(2, 20_000))),
    "one call again and again": poured(lambda: frame(called(2, wire.StepFrame("x" * 500_000))) * 40),
    "calls that nobody reads": poured(
        lambda: b"".join(frame(called(seq, wire.StepFrame("x" * 100_000))) for seq in range(2, 300))
    ),
    "bodies that do not end": posted("/v1/sessions", b"x" * 4_000_000, 40, read=False, length=4_000_010),
    "bodies of empty lists": posted("/v1/sessions", b'{"type":"hello","versions":[' + b"[]," * 1_300_000, 6),
    "deep bodies": posted("/v1/sessions", json.dumps(nested(500)).encode() * 2000, 6),
    "tiny requests": posted("/v1/sessions", b"{}" * 2, 200),
    "sessions that nobody plays": posted("/v1/sessions", wire.encode_json_frame(wire.Hello((1,), REFERENCE)), 400),
    "answers that nobody reads": unread_answers,
    "requests for the health": posted("/health", b"", 200),
}
SAMPLE = [
    *("actions of 60 kB", "a reset of empty lists", "frames that do not end", "fragments of a byte", "tiny pings"),
    *("bodies that do not end", "answers that nobody reads"),
]


@pytest.mark.parametrize("name", ways(WAYS, SAMPLE, gate="tiny pings"))
def test_no_way_of_one_token_gets_beyond_the_bounds(server: Child, name: str) -> None:
    async def attack() -> None:
        with contextlib.suppress(ConnectionClosed, ConnectionError):
            await WAYS[name](server.ask("url"))

    print(name, check(server, attack, BOUND, LIMITS.max_remembered + LIMITS.max_unfinished))
