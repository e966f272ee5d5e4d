"""Regression tests for attacks on the server: headers, paths, frames and floods that must have no effect."""

import asyncio
import json
from collections.abc import AsyncIterator
from time import thread_time

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from palestra.serve import EnvServer, ServerLimits, wire
from palestra.serve.tokens import new_token
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE
from tests.serve.test_server import http

ANN, BOB = new_token(), new_token()
MEGABYTE = 2**20


@pytest.fixture
async def server() -> AsyncIterator[EnvServer]:
    async with EnvServer(REFERENCE, [ANN, BOB], limits=ServerLimits(max_message=MEGABYTE)) as running:
        yield running


def dial(server: EnvServer, token: str, **options: object) -> connect:
    address = server.url.replace("http", "ws") + wire.PATH
    headers = {"Authorization": f"Bearer {token}"}
    return connect(address, additional_headers=headers, ping_interval=None, proxy=None, **options)  # type: ignore[arg-type,unused-ignore]


HEADERS = [
    {"Authorization": ""},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer null"},
    {"Authorization": f"Basic {ANN}"},
    {"Authorization": f"Bearer {ANN[:-1]}"},
    {"Authorization": f"Bearer {ANN}, Bearer {ANN}"},
    {"Authorization": f"Bearer {ANN} extra"},
    {"Authorization": f"Bearer\t{ANN}"},
    {"Authorization": f"Bearer {ANN.swapcase()}"},
    {"X-Authorization": f"Bearer {ANN}"},
    {"Proxy-Authorization": f"Bearer {ANN}"},
    {"Cookie": f"token={ANN}"},
    {"X-Forwarded-For": "127.0.0.1"},
    {"X-Original-URL": "/health"},
    {"X-Host": "localhost"},
    {"Authorization": f"Bearer {ANN}\r\nAuthorization: Bearer {BOB}"},
]


@pytest.mark.parametrize("path", ["/v1/envs", "/metrics", "/openapi.json"])
async def test_no_other_header_opens_the_door(server: EnvServer, path: str) -> None:
    assert [headers for headers in HEADERS if (await http(server, "GET", path, b"", **headers))[0] != 401] == []


PATHS = (
    "//v1/envs /v1/../metrics /v1/%2e%2e/metrics /health/../v1/envs /v1/envs/ /V1/ENVS /v1/sessions/..%2f..%2fmetrics"
    " /v1/sessions/%00 /v1/envs;x /.git/config /etc/passwd http://127.0.0.1/v1/envs *"
)


async def test_no_path_leads_around_it(server: EnvServer) -> None:
    for path in PATHS.split():
        status, _, body = await http(server, "GET", path, X="no token")
        assert status in (400, 401, 404, 405, 307), path
        assert REFERENCE.encode() not in body, path


@pytest.mark.parametrize("query", ["?token=", "?authorization=Bearer%20"])
async def test_a_token_in_the_address_is_no_token(server: EnvServer, query: str) -> None:
    extra = query + ANN
    assert (await http(server, "GET", f"/v1/envs{extra}", X="no token"))[0] == 401
    address = server.url.replace("http", "ws") + wire.PATH + extra
    with pytest.raises(InvalidStatus, match="401"):
        await connect(address, proxy=None)


async def test_another_tenants_session_is_not_there(server: EnvServer) -> None:
    async with dial(server, ANN) as mine, dial(server, BOB) as theirs:
        await mine.send(wire.encode_frame(wire.Hello((1,), REFERENCE)))
        session = wire.decode_frame(bytes(await mine.recv()), wire.FromServer).session  # type: ignore[arg-type,unused-ignore]
        await theirs.send(wire.encode_frame(wire.Hello((1,), session=session)))
        answer = wire.decode_frame(bytes(await theirs.recv()), wire.FromServer)  # type: ignore[arg-type,unused-ignore]
        assert (type(answer), answer.code) == (wire.Fault, wire.Code.NO_SESSION)
        bearer = {"Authorization": f"Bearer {BOB}"}
        for method in ("GET", "DELETE"):
            status, _, body = await http(server, method, f"/v1/sessions/{session}", b"", **bearer)
            assert (status, json.loads(body)["code"]) == (404, "no_session")
        await mine.send(wire.encode_frame(wire.CallFrame(1, 1, 5.0, wire.ResetFrame(Task(REFERENCE, 1)))))
        assert wire.decode_frame(bytes(await mine.recv()), wire.FromServer).seq == 1  # type: ignore[arg-type,unused-ignore]


async def test_nothing_is_unpacked(server: EnvServer) -> None:
    async with dial(server, ANN, compression="deflate") as socket:
        assert not socket.protocol.extensions


@pytest.mark.parametrize("size", [2**62, 2**63 - 1, 2**64 - 1, 2**32, MEGABYTE + 1])
async def test_a_frame_that_says_it_is_huge_is_not_waited_for(server: EnvServer, size: int) -> None:
    async with dial(server, ANN) as socket:
        socket.transport.write(b"\x82\xff" + size.to_bytes(8, "big") + b"\0\0\0\0" + b"x" * 1000)
        await asyncio.wait_for(socket.wait_closed(), 60)
        assert socket.close_code in (1002, 1009)
    assert server.sessions.unfinished.held == 0


@pytest.mark.parametrize(
    ("host", "status"), [("evil.example", 421), ("127.0.0.1:1", 200), ("localhost", 200), ("[::1]:5", 200)]
)
async def test_a_page_of_another_name_does_not_learn_that_a_local_server_runs(
    server: EnvServer, host: str, status: int
) -> None:
    assert (await http(server, "GET", "/health", b"", Host=host, X="no token"))[0] == status
    assert (await http(server, "GET", "/health", b"", Host=host, Authorization=f"Bearer {ANN}"))[0] == 200


async def test_a_flood_of_tiny_frames_gives_the_loop_its_turns(server: EnvServer) -> None:
    async with dial(server, ANN) as flood:
        connection = next(iter(server._door.connections))
        longest = 0.0
        flood.transport.pause_reading()
        connection.data_received(b"\x89\x80\0\0\0\0" * 43_000)  # what one read from a socket can hold
        while connection._slices.waiting and not connection._paused:
            began = thread_time()
            await asyncio.sleep(0)
            longest = max(longest, thread_time() - began)
        assert longest < 0.05
        flood.transport.abort()


async def test_a_client_that_goes_away_is_no_error_of_the_server(server: EnvServer, caplog: pytest.LogCaptureFixture) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    head = f"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ANN}\r\nContent-Length: 1000\r\n\r\n"
    writer.write(head.encode() + b"x" * 10)
    async with asyncio.timeout(60):
        while not server.sessions.unfinished.held:
            await asyncio.sleep(0.01)
        writer.transport.abort()
        while server.sessions.unfinished.held:
            await asyncio.sleep(0.01)
    assert server.sessions.metrics.faults[wire.Code.INTERNAL] == 0
    assert "failed" not in caplog.text
