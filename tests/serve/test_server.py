"""The server from outside: health, metrics, plain HTTP, signals, and connections that misbehave."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

import palestra
from palestra import registry
from palestra.errors import MissingExtra, UnknownEnv, UsageError
from palestra.foundation.installation import how_to_install
from palestra.serve import EnvServer, RemoteEnv, ServerLimits, wire
from palestra.serve.connection import LEASE_OVER, SUPERSEDED
from palestra.serve.openapi import document
from palestra.serve.tokens import new_token
from palestra.trajectory import Task
from tests.serve import hostile, sequences
from tests.serve.certificates import NEEDS_OPENSSL, certificate_and_key
from tests.serve.tally import REFERENCE, reward_of

ROOT = Path(__file__).parents[2]
TOKEN = new_token()
BEARER = {"Authorization": f"Bearer {TOKEN}"}
HELLO = wire.Hello((1,), REFERENCE)
RESET = wire.CallFrame(1, 1, 10.0, wire.ResetFrame(Task(REFERENCE, 3)))


@pytest.fixture
async def server() -> AsyncIterator[EnvServer]:
    async with EnvServer(REFERENCE, TOKEN, limits=ServerLimits(max_message=50_000)) as running:
        yield running


def dial(server: EnvServer, path: str = wire.PATH, **headers: str) -> connect:
    address = server.url.replace("http", "ws") + path
    return connect(address, additional_headers=headers or BEARER, compression=None, ping_interval=None, proxy=None)


async def told(socket: ClientConnection, *frames: Any) -> Any:
    """Send ``frames``; the answer to the last."""
    for frame in frames:
        await socket.send(frame if isinstance(frame, bytes | str) else wire.encode_frame(frame))
    for _ in frames:
        answer = await asyncio.wait_for(socket.recv(), 60)
    assert isinstance(answer, bytes)
    return wire.decode_frame(answer, wire.FromServer)


async def http(
    server: EnvServer, method: str, path: str, body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """One request over a connection of its own: status, headers, body."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    named = f"Host: {headers.pop('Host', f'{host}:{port}')}"
    lines = [f"{method} {path} HTTP/1.1", named, "Connection: close", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in (headers or BEARER).items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    head, _, rest = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    first, *others = head.decode().split("\r\n")
    return int(first.split()[1]), {name.lower(): value for name, value in (line.split(": ", 1) for line in others)}, rest


# -------------------------------------------------------------------------------------------------------------- WebSocket


@pytest.mark.parametrize("headers", [{"X": "x"}, {"Authorization": "Bearer " + new_token()}, {"Authorization": TOKEN}])
async def test_no_token_no_connection(server: EnvServer, headers: dict[str, str]) -> None:
    with pytest.raises(InvalidStatus, match="401"):
        await dial(server, **headers)
    assert server.sessions.metrics.refused == 1


async def test_another_path_is_not_found(server: EnvServer) -> None:
    with pytest.raises(InvalidStatus, match="404"):
        await dial(server, "/elsewhere")


async def test_an_unknown_protocol_version_is_refused(server: EnvServer) -> None:
    async with dial(server) as socket:
        answer = await told(socket, wire.Hello((2, 3), REFERENCE))
        assert (type(answer), answer.code) == (wire.Fault, wire.Code.VERSION)
        assert isinstance(await told(socket, HELLO), wire.Welcome)


async def test_both_sides_know_the_smaller_size(server: EnvServer) -> None:
    async with dial(server) as socket:
        assert (await told(socket, wire.Hello((1,), REFERENCE, max_message=2048))).max_message == 2048
    async with dial(server) as socket:
        assert (await told(socket, HELLO)).max_message == 50_000


@pytest.mark.parametrize(
    "noise", [b"", b"\xc1", "text", wire.encode_frame([1]), wire.encode_frame(RESET)[:-1], wire.encode_frame({"type": "call"})]
)
async def test_noise_costs_neither_connection_nor_session(server: EnvServer, noise: bytes | str) -> None:
    async with dial(server) as socket:
        await told(socket, HELLO, RESET)
        answer = await told(socket, noise)
        assert (type(answer), answer.code) == (wire.Fault, wire.Code.BAD_FRAME)
        answer = await told(socket, wire.CallFrame(2, 2, 1.0, wire.StepFrame("x")))
        assert isinstance(answer, wire.ReplyFrame)


async def test_a_message_in_pieces_is_one_message(server: EnvServer) -> None:
    async with dial(server) as socket:
        await told(socket, HELLO)
        data = wire.encode_frame(RESET)
        await socket.send([data[:5], data[5:9], data[9:]])
        assert isinstance(await asyncio.wait_for(socket.recv(), 60), bytes)


async def test_an_oversized_frame_ends_the_connection_and_not_the_session(server: EnvServer) -> None:
    async with dial(server) as socket:
        welcome = await told(socket, HELLO)
        await told(socket, RESET)
        await socket.send(b"x" * 60_000)
        with pytest.raises(ConnectionClosed):
            await asyncio.wait_for(socket.recv(), 60)
    async with dial(server) as socket:
        assert (await told(socket, wire.Hello((1,), session=welcome.session))).seq == 1
        assert isinstance(await told(socket, wire.CallFrame(2, 2, 1.0, wire.StepFrame("x"))), wire.ReplyFrame)


async def test_a_repeated_call_is_answered_from_memory_even_elsewhere(server: EnvServer) -> None:
    step = wire.CallFrame(2, 2, 1.0, wire.StepFrame("x"))
    async with dial(server) as first:
        welcome = await told(first, HELLO)
        await told(first, RESET, step)
        async with dial(server) as second:
            await told(second, wire.Hello((1,), session=welcome.session))
            again = await told(second, wire.CallFrame(2, 77, 1.0, wire.StepFrame("x")))
            assert (again.request, again.result.reward) == (77, reward_of(3, 1, "x"))
            assert (await told(second, wire.CallFrame(2, 78, 1.0, wire.StepFrame("y")))).code is wire.Code.CONFLICT
            with pytest.raises(ConnectionClosed) as closed:
                await asyncio.wait_for(first.recv(), 60)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == SUPERSEDED


async def test_a_beat_is_answered_by_a_beat(server: EnvServer) -> None:
    async with dial(server) as socket:
        await told(socket, HELLO)
        assert await told(socket, wire.Beat(9)) == wire.Beat(9)


async def test_a_connection_that_says_nothing_is_closed() -> None:
    async with EnvServer(REFERENCE, TOKEN, limits=ServerLimits(ttl=0.2)) as server, dial(server) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await asyncio.wait_for(socket.recv(), 60)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == LEASE_OVER


@pytest.mark.gate
@pytest.mark.slow
async def test_a_hostile_server_has_no_effect_on_its_clients() -> None:
    messages, effects = await hostile.attack()
    assert messages >= 100
    assert effects == 0


async def test_random_conversations_neither_fail_nor_lose_a_session() -> None:
    assert await sequences.run(100, seed=3) == (0, 0)


# ------------------------------------------------------------------------------------------------------------------- HTTP


async def test_health_plays_a_real_environment(server: EnvServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await _health(server) == (200, "ok")
    monkeypatch.setattr("palestra.serve.http.PROBE_EVERY", 0.0)
    monkeypatch.setattr("tests.serve.tally.Tally.reset", lambda *_, **__: 1 / 0)
    assert await _health(server) == (503, "failing")
    monkeypatch.undo()
    server.sessions.draining = True
    monkeypatch.setattr("palestra.serve.http.PROBE_EVERY", 0.0)
    assert await _health(server) == (503, "draining")


async def test_health_probes_a_worker_that_can_be_forked() -> None:
    async with EnvServer([REFERENCE, "tests.serve.tally:IsolatedTally"], TOKEN) as server:
        assert await _health(server) == (200, "ok")
        assert server.sessions.host.workers == 0


async def _health(server: EnvServer) -> tuple[int, str]:
    status, _, body = await http(server, "GET", "/health", X="no token needed")
    return status, json.loads(body)["status"]


async def test_metrics_are_counted_and_readable(server: EnvServer) -> None:
    async with dial(server) as socket:
        await told(socket, HELLO, RESET, RESET)
        status, headers, body = await http(server, "GET", "/metrics")
    lines = body.decode().splitlines()
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert "palestra_sessions 1" in lines
    assert 'palestra_calls_total{verb="reset"} 1' in lines
    assert "palestra_calls_repeated_total 1" in lines
    assert any(line.startswith("# TYPE palestra_http_answers_total") for line in lines)
    assert all(re.fullmatch(r'# TYPE \w+ (gauge|counter|histogram)|\w+(\{\w+="[^"]*"\})? [-+.\de]+', line) for line in lines)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/metrics"), ("GET", "/v1/envs"), ("POST", "/v1/sessions"), ("DELETE", "/v1/sessions/x")]
)
async def test_http_needs_the_token_too(server: EnvServer, method: str, path: str) -> None:
    status, headers, body = await http(server, method, path, X="nothing")
    assert (status, headers["www-authenticate"], json.loads(body)["code"]) == (401, "Bearer", "unauthorized")


async def test_a_whole_episode_over_plain_http(server: EnvServer) -> None:
    status, _, body = await http(server, "POST", "/v1/sessions", wire.encode_json_frame(HELLO))
    assert status == 201
    path = f"/v1/sessions/{json.loads(body)['session']}"
    status, _, body = await http(server, "POST", f"{path}/calls", wire.encode_json_frame(RESET))
    assert (status, json.loads(body)["result"]["observation"]) == (200, "3:0:")
    step = wire.encode_json_frame(wire.CallFrame(2, 9, 1.0, wire.StepFrame("x")))
    for _ in range(2):
        status, _, body = await http(server, "POST", f"{path}/calls", step)
        assert (status, json.loads(body)["result"]["reward"]) == (200, reward_of(3, 1, "x"))
    for seq, wanted in ((2, 409), (1, 409)):
        call = wire.encode_json_frame(wire.CallFrame(seq, 9, 1.0, wire.StepFrame("other")))
        assert (await http(server, "POST", f"{path}/calls", call))[0] == wanted
    assert (await http(server, "GET", path))[0] == 200
    assert (await http(server, "DELETE", path))[0] == 204
    assert (await http(server, "GET", path))[0] == 404
    assert len(server.sessions) == 0


async def test_slow_calls_over_plain_http() -> None:
    async with EnvServer("tests.serve.tally:Waiting", TOKEN) as server:
        _, _, body = await http(
            server, "POST", "/v1/sessions", wire.encode_json_frame(wire.Hello((1,), "tests.serve.tally:Waiting"))
        )
        path = f"/v1/sessions/{json.loads(body)['session']}/calls"
        reset = wire.CallFrame(1, 1, 10.0, wire.ResetFrame(Task("tests.serve.tally:Waiting", 3)))
        assert (await http(server, "POST", path, wire.encode_json_frame(reset)))[0] == 200
        step = wire.encode_json_frame(wire.CallFrame(2, 1, 10.0, wire.StepFrame("0.3")))
        answers = await asyncio.gather(http(server, "POST", path, step), http(server, "POST", path, step))
        assert [json.loads(body)["result"]["observation"] for _, _, body in answers] == ["1", "1"]
        late = wire.encode_json_frame(wire.CallFrame(3, 1, 0.05, wire.StepFrame("60")))
        assert (await http(server, "POST", path, late))[0] == 408


async def test_a_full_server_says_429_and_when_to_come_back() -> None:
    async with EnvServer(REFERENCE, TOKEN, limits=ServerLimits(max_sessions=0)) as server:
        status, headers, _ = await http(server, "POST", "/v1/sessions", wire.encode_json_frame(HELLO))
        assert (status, headers["retry-after"]) == (429, "1")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"type":"hello","versions":[1],"env":NaN}', 400),
        (b'{"type":"hello","versions":[1],"env":"nobody"}', 404),
        (b"[" * 40_000, 400),
        (b"x" * 60_000, 413),
    ],
)
async def test_bad_bodies(server: EnvServer, body: bytes, status: int) -> None:
    found, _, answer = await http(server, "POST", "/v1/sessions", body)
    assert found == status
    assert json.loads(answer)["type"] == "fault"


async def test_the_openapi_page_is_whole(server: EnvServer) -> None:
    assert (await http(server, "GET", "/openapi.json", X="no token"))[0] == 401  # it names what is served
    status, _, body = await http(server, "GET", "/openapi.json")
    page = json.loads(body)
    assert status == 200
    assert page == json.loads(json.dumps(document([REFERENCE])))
    references = set(re.findall(r'"#/components/schemas/(\w+)"', body.decode()))
    assert references <= set(page["components"]["schemas"])


@pytest.mark.slow
async def test_schemathesis_finds_no_server_error() -> None:
    found = await sequences.schemathesis(50)
    if found is None:
        pytest.skip("schemathesis is not installed")
    calls, failures = found
    assert calls > 100
    assert failures == 0


# ------------------------------------------------------------------------------------------------------- starting and stopping


def test_what_cannot_be_served_is_reported_at_the_start() -> None:
    for ids, kind in (([], UsageError), (["game:Nothing*"], UsageError), (["game:Sudok-v0"], UnknownEnv)):
        with pytest.raises(kind):
            EnvServer(ids, TOKEN)
    with pytest.raises(UsageError, match="128 bits"):
        EnvServer(REFERENCE, "secret")


def test_a_pattern_leaves_out_what_lacks_something_and_a_name_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_specs", dict(registry._specs))
    palestra.register("half:Whole-v0", REFERENCE)
    palestra.register(
        "half:Lacking-v0", REFERENCE, needs=[registry.Need(label="a thing", program="no-such-program", fix="get it")]
    )
    assert list(EnvServer("half:*", TOKEN).sessions.host.offers) == ["half:Whole-v0"]
    for ids, kind in ((["half:Lacking-v0"], MissingExtra), (["half:L*"], UsageError)):
        with pytest.raises(kind):
            EnvServer(ids, TOKEN)


async def test_a_port_in_use_is_a_mistake_that_is_explained(server: EnvServer) -> None:
    with pytest.raises(UsageError, match="cannot listen"):
        async with EnvServer(REFERENCE, TOKEN, port=int(server.url.rpartition(":")[2])):
            pass


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.registry.specs.importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=re.escape(how_to_install("serve"))):
        palestra.make_async("remote:http://host:1#game:X", token=TOKEN)


@pytest.fixture
def command(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    arguments = ["serve", REFERENCE, "--token-file", str(tmp_path / "token")]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    process = subprocess.Popen(
        [sys.executable, "-m", "palestra.cli", *arguments],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.communicate()


@pytest.mark.gate
@pytest.mark.slow
def test_the_command_serves_and_drains_on_sigterm(command: "subprocess.Popen[str]", tmp_path: Path) -> None:
    assert command.stdout is not None
    url = re.findall(r"http://\S+", command.stdout.readline())[0]
    token = (tmp_path / "token").read_text().strip()
    with palestra.make(f"remote:{url}#{REFERENCE}", token=token) as env:
        env.reset(seed=1)
        command.send_signal(signal.SIGTERM)
        assert env.step("x").info == {"turn": 1}, "a running episode continues"
        env.step("end")
        output, errors = command.communicate(timeout=100)
    assert command.returncode == 0, errors
    assert token not in output + errors


@NEEDS_OPENSSL
@pytest.mark.slow
async def test_https_with_a_certificate_that_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = certificate_and_key(tmp_path)
    async with EnvServer(REFERENCE, TOKEN, certificate=certificate, key=key) as server:
        assert server.url.startswith("https://")
        with pytest.raises(UsageError, match=r"not trusted here .* set SSL_CERT_FILE"):  # at once, not at the deadline
            await RemoteEnv(f"{server.url}#{REFERENCE}", token=TOKEN, deadline=600.0).reset(seed=0)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        env = RemoteEnv(f"{server.url}#{REFERENCE}", token=TOKEN)
        assert (await env.reset(task=Task(REFERENCE, 8)))[0] == "8:0:"
        await env.close()
    with pytest.raises(UsageError, match="both a certificate and its key"):
        async with EnvServer(REFERENCE, TOKEN, certificate=certificate):
            pass
    with pytest.raises(UsageError, match="cannot be used"):
        async with EnvServer(REFERENCE, TOKEN, certificate=certificate, key=certificate):
            pass
