"""Limits between the owners of tokens, and between a server and its client: what one can make the other hold."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from time import thread_time

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

import palestra
from palestra.errors import EnvError, PalestraError, SchemaError, UsageError
from palestra.serve import EnvServer, RemoteEnv, ServerLimits, wire
from palestra.serve.session import ServerSession
from palestra.serve.shares import Shares
from palestra.serve.tokens import new_token
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE

ANN, BOB = new_token(), new_token()
IN_WORKER = "tests.serve.tally:IsolatedTally"
MEGABYTE = 2**20


def dial(server: EnvServer, token: str) -> connect:
    address = server.url.replace("http", "ws") + wire.PATH
    return connect(address, additional_headers={"Authorization": f"Bearer {token}"}, compression=None, proxy=None)


# --------------------------------------------------------------------------------------------------------------- parameters


class Sized(palestra.Env):
    """Works as long as its task says."""

    client_params = frozenset({"level"})

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, object]]:
        super().reset(seed=seed, task=task)
        return str(dict(self.task.params)), {}

    def step(self, action: str) -> palestra.Step:
        return palestra.Step("", 1.0, True, False, {})


SIZED = f"{__name__}:Sized"


async def test_a_client_sets_the_parameters_that_the_class_allows() -> None:
    async with EnvServer([SIZED, REFERENCE], ANN) as server:
        env = RemoteEnv(f"{server.url}#{SIZED}", token=ANN)
        assert (await env.reset(task=Task(SIZED, 1, params={"level": 2})))[0] == "{'level': 2}"
        with pytest.raises(UsageError, match=r"may not set terms of .*only level.*--any-params"):
            await env.reset(task=Task(SIZED, 1, params={"level": 2, "terms": 2_000_000}))
        assert (await env.reset(task=Task(SIZED, 1)))[0] == "{}"  # a refusal costs nothing
        await env.close()
        other = RemoteEnv(f"{server.url}#{REFERENCE}", token=ANN)
        with pytest.raises(UsageError, match="none"):
            await other.reset(task=Task(REFERENCE, 1, params={"x": 1}))
        await other.close()


async def test_an_operator_can_allow_all() -> None:
    async with EnvServer(SIZED, ANN, any_params=True) as server:
        env = RemoteEnv(f"{server.url}#{SIZED}", token=ANN)
        assert (await env.reset(task=Task(SIZED, 1, params={"terms": 2})))[0] == "{'terms': 2}"
        await env.close()


# ------------------------------------------------------------------------------------------------------------------- quotas


@pytest.mark.gate
@pytest.mark.slow
async def test_one_token_cannot_take_every_worker() -> None:
    limits = ServerLimits(max_workers=2)
    async with EnvServer(IN_WORKER, [ANN, BOB], limits=limits) as server:
        mine = [RemoteEnv(f"{server.url}#{IN_WORKER}", token=ANN) for _ in range(2)]
        await mine[0].reset(seed=1)
        mine[1]._deadline = 1.0
        with pytest.raises(PalestraError, match="1 worker processes of this token"):
            await mine[1].reset(seed=1)
        mine[1]._deadline = 60.0
        theirs = RemoteEnv(f"{server.url}#{IN_WORKER}", token=BOB)
        await theirs.reset(seed=1)
        await mine[0].close()
        await mine[1].reset(seed=1)  # what was given back can be taken again
        for env in (*mine, theirs):
            await env.close()


def test_shares_are_equal_and_can_be_empty() -> None:
    shares = Shares(10, 3)
    assert shares.room(b"a", 3)
    assert not shares.room(b"a", 4)
    shares.take(b"a", 3)
    assert (shares.room(b"a"), shares.room(b"b"), shares.held) == (False, True, 3)
    shares.give_back(b"a", 1)
    assert shares.room(b"a")
    assert not Shares(0, 1).room(b"a")
    assert Shares(1, 5).room(b"a")


# -------------------------------------------------------------------------------------------------------------------- bytes


async def begun(server: EnvServer, head: str, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has sent ``head`` and ``data``, and waits with the end."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{head}Host: x\r\nAuthorization: Bearer {ANN}\r\n\r\n".encode() + data)
    return reader, writer


async def test_frames_that_never_end_are_bounded_per_token() -> None:
    upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    head = f"GET {wire.PATH} HTTP/1.1\r\n{upgrade}Sec-WebSocket-Version: 13\r\n"
    frame = b"\x82\xff" + (4 * MEGABYTE).to_bytes(8, "big") + bytes(4) + b"x" * (4 * MEGABYTE - 10)
    async with EnvServer(REFERENCE, [ANN, BOB], limits=ServerLimits(max_unfinished=8 * MEGABYTE)) as server:
        attackers = [await begun(server, head) for _ in range(20)]
        for reader, writer in attackers:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(frame)
        ended = [asyncio.create_task(reader.read()) for reader, _ in attackers]
        async with asyncio.timeout(60):
            while sum(task.done() for task in ended) < 19:
                await asyncio.sleep(0.01)
        assert server.sessions.unfinished.held <= 4 * MEGABYTE
        env = RemoteEnv(f"{server.url}#{REFERENCE}", token=BOB)
        await env.reset(task=Task(REFERENCE, 1))
        assert (await env.step("x" * MEGABYTE)).info["turn"] == 1
        await env.close()
        for _, writer in attackers:
            writer.close()
        async with asyncio.timeout(60):
            await asyncio.wait(ended)
            while server.sessions.unfinished.held:
                await asyncio.sleep(0.01)


async def test_bodies_that_never_end_are_bounded_too() -> None:
    limits = ServerLimits(max_unfinished=2 * MEGABYTE, max_message=MEGABYTE)
    async with EnvServer(REFERENCE, ANN, limits=limits) as server:
        head = f"POST /v1/sessions HTTP/1.1\r\nContent-Length: {MEGABYTE}\r\n"
        streams = [await begun(server, head, b"x" * (MEGABYTE - 10)) for _ in range(4)]
        answers = [asyncio.create_task(reader.readline()) for reader, _ in streams]
        await asyncio.wait(answers, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert b"HTTP/1.1 429 Too Many Requests\r\n" in {task.result() for task in answers if task.done()}
        assert server.sessions.unfinished.held <= 2 * MEGABYTE
        for _, writer in streams:
            writer.close()
        await asyncio.wait(answers)


@pytest.mark.gate
@pytest.mark.slow
async def test_answers_that_are_kept_are_bounded() -> None:
    limits = ServerLimits(max_remembered=6 * MEGABYTE + 2**17, max_message=2 * MEGABYTE)
    async with EnvServer(REFERENCE, ANN, limits=limits) as server:
        envs = [RemoteEnv(f"{server.url}#{REFERENCE}", token=ANN) for _ in range(4)]
        for env in envs:
            await env.reset(task=Task(REFERENCE, 1))
        for env in envs[:2]:  # a call of a megabyte, which is kept, and its answer, which counts twice
            await env.step("x" * MEGABYTE)
        envs[3]._deadline = 1.0
        with pytest.raises(PalestraError, match="take too much memory"):
            await envs[3].step("x" * 2**17)
        envs[3]._deadline = 60.0
        assert (await envs[0].step("x")).info["turn"] == 2  # it gives up what it holds
        assert (await envs[3].step("y")).info["turn"] == 1
        for env in envs:
            await env.close()
        assert server.sessions._remembered.held == 0


def call(server: EnvServer, session: ServerSession, seq: int, verb: wire.Verb) -> wire.ReplyFrame | wire.Fault:
    frame = wire.CallFrame(seq, seq, 10.0, verb)
    answer = wire.decode_frame(server.sessions.take(session, frame, len(wire.encode_frame(frame))), wire.FromServer)
    assert isinstance(answer, wire.ReplyFrame | wire.Fault)
    return answer


class Growing(palestra.Env):
    """Answers with more and more text."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, object]]:
        super().reset(seed=seed, task=task)
        return "", {}

    def step(self, action: str) -> palestra.Step:
        return palestra.Step("x" * int(action), 0.0, False, False, {})


async def test_an_answer_that_finds_no_room_ends_its_episode_only() -> None:
    growing = f"{__name__}:Growing"
    limits = ServerLimits(max_remembered=2 * MEGABYTE, max_message=MEGABYTE)
    async with EnvServer(growing, ANN, limits=limits) as server:
        sessions = []
        for _ in range(2):
            opened = server.sessions.hello(b"ann", wire.Hello((1,), growing))
            assert not isinstance(opened, wire.Fault)
            sessions.append(opened[0])
            assert isinstance(call(server, opened[0], 1, wire.ResetFrame(Task(growing, 1))), wire.ReplyFrame)
        assert isinstance(call(server, sessions[0], 2, wire.StepFrame("700000")), wire.ReplyFrame)
        lost = call(server, sessions[1], 2, wire.StepFrame("700000"))
        assert isinstance(lost, wire.Fault)
        assert (lost.code, str(lost.boundary)) == (wire.Code.FAILED, "infrastructure")
        assert "max_remembered" in lost.message
        assert isinstance(call(server, sessions[0], 3, wire.StepFrame("1")), wire.ReplyFrame)
        assert isinstance(call(server, sessions[1], 3, wire.ResetFrame(Task(growing, 1))), wire.ReplyFrame)
        assert server.sessions._remembered.held < MEGABYTE


async def test_a_reset_of_another_environment_and_a_huge_action_are_refused() -> None:
    async with EnvServer(REFERENCE, ANN, limits=ServerLimits(max_action=1000)) as server:
        opened = server.sessions.hello(b"ann", wire.Hello((1,), REFERENCE))
        assert not isinstance(opened, wire.Fault)
        refused = call(server, opened[0], 1, wire.ResetFrame(Task("os:system", 1)))
        assert isinstance(refused, wire.Fault)
        assert (refused.code, REFERENCE in refused.message) == (wire.Code.USAGE, True)
        assert isinstance(call(server, opened[0], 1, wire.ResetFrame(Task(REFERENCE, 1))), wire.ReplyFrame)
        refused = call(server, opened[0], 2, wire.StepFrame("x" * 1001))
        assert isinstance(refused, wire.Fault)
        assert (refused.code, "max_action" in refused.message) == (wire.Code.TOO_LARGE, True)


@pytest.mark.parametrize("encode", [wire.encode_frame, wire.encode_json_frame])
def test_a_frame_of_many_small_values_is_refused_before_they_are_made(encode: Callable[[object], bytes]) -> None:
    read = wire.decode_frame if encode is wire.encode_frame else wire.decode_json_frame
    kind = wire.FromClient if encode is wire.encode_frame else wire.CallFrame
    fair = wire.CallFrame(1, 1, 10.0, wire.StepFrame("x" * MEGABYTE))
    assert read(encode(fair), kind) == fair
    hostile = encode(wire.CallFrame(1, 1, 10.0, wire.ResetFrame(Task(REFERENCE, 1, params={"x": [[]] * MEGABYTE}))))

    def seconds() -> float:
        began = thread_time()
        with pytest.raises(SchemaError, match="32768"):
            read(hostile, kind)
        return thread_time() - began

    assert min(seconds() for _ in range(3)) < 0.05


@pytest.mark.gate
@pytest.mark.slow
async def test_a_client_that_does_not_read_is_not_worked_for() -> None:
    async with EnvServer(REFERENCE, ANN) as server, dial(server, ANN) as socket:
        await socket.send(wire.encode_frame(wire.Hello((1,), REFERENCE)))
        await socket.recv()
        await socket.send(wire.encode_frame(wire.CallFrame(1, 1, 10.0, wire.ResetFrame(Task(REFERENCE, 1)))))
        await socket.recv()
        socket.transport.pause_reading()
        connection = next(iter(server._door.connections))
        text = "x" * 200_000
        for seq in range(2, 80):
            socket.transport.write(_frame(wire.encode_frame(wire.CallFrame(seq, seq, 10.0, wire.StepFrame(text)))))
        await asyncio.sleep(0.5)
        assert connection._transport.get_write_buffer_size() < 2 * MEGABYTE
        socket.transport.resume_reading()
        turns = [wire.decode_frame(bytes(await socket.recv()), wire.FromServer).result.info["turn"] for _ in range(78)]  # type: ignore[arg-type,unused-ignore]
        assert turns == list(range(1, 79))


def _frame(payload: bytes) -> bytes:
    return b"\x82\xff" + len(payload).to_bytes(8, "big") + b"\0\0\0\0" + payload


# ------------------------------------------------------------------------------------------------- a server against a client


class Endless:
    """A server that never ends an episode and answers with ``size`` bytes."""

    def __init__(self, size: int) -> None:
        self.text = "x" * size

    async def handle(self, socket: ServerConnection) -> None:
        try:
            async for message in socket:
                assert isinstance(message, bytes)
                await socket.send(self._answer(wire.decode_frame(message, wire.FromClient)))
        except ConnectionClosed:
            pass

    def _answer(self, frame: object) -> bytes:
        if isinstance(frame, wire.Hello):
            return wire.encode_frame(wire.Welcome(1, "0" * 32, frame.env, 0, 10.0, 60.0, 4 * MEGABYTE, 60.0))
        assert isinstance(frame, wire.CallFrame)
        if isinstance(frame.verb, wire.ResetFrame):
            return wire.encode_frame(wire.ReplyFrame(frame.seq, frame.request, wire.Shown(self.text, {})))
        return wire.encode_frame(wire.ReplyFrame(frame.seq, frame.request, wire.Stepped(self.text, 0.0, False, False, {})))


@pytest.fixture
async def endless() -> AsyncIterator[str]:
    async with serve(Endless(MEGABYTE).handle, "127.0.0.1", 0, compression=None) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_server_cannot_fill_its_client(endless: str) -> None:
    env = RemoteEnv(f"{endless}#x", token=ANN, max_episode_bytes=5 * MEGABYTE)
    for _ in range(2):  # each episode has its own limit
        await env.reset(seed=1)
        for _ in range(3):
            await env.step("go on")
        with pytest.raises(EnvError, match="max_episode_bytes"):
            await env.step("go on")
    await env.close()


async def test_a_server_cannot_play_for_ever(endless: str) -> None:
    env = RemoteEnv(f"{endless}#x", token=ANN, max_steps=3)
    await env.reset(seed=1)
    await env.step("1")
    await env.step("2")
    with pytest.raises(EnvError, match=r"did not end the episode in 3 steps; make\(…, max_steps=…\)"):
        await env.step("3")
    await env.close()


async def test_an_episode_over_the_limit_is_the_environments_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_TOKEN", ANN)
    monkeypatch.setenv("PALESTRA_TOKEN_HOST", "127.0.0.1")
    async with serve(Endless(4 * MEGABYTE - 200).handle, "127.0.0.1", 0, compression=None) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        played = [one async for one in palestra.rollout(f"remote:{url}#x", lambda text: "go on", n=1)]
    assert [(one.reward, one.failures[-1].boundary) for one in played] == [(None, "env")]
    assert len(json.dumps(played[0].failures[-1].message)) < 500
    assert len(played[0].turns) < 20
