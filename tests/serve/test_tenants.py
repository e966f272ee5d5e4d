"""Limits between the owners of tokens, and between a server and its client: what one can make the other hold."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from time import perf_counter, thread_time

import pytest
from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

import palestra
from palestra.errors import EnvError, PalestraError, SchemaError, UsageError
from palestra.serve import EnvServer, RemoteEnv, ServerLimits
from palestra.serve.session import ServerSession
from palestra.serve.shares import Shares
from palestra.serve.tokens import new_token
from palestra.serve.wire import (
    PATH,
    CallFrame,
    Code,
    Fault,
    FromClient,
    FromServer,
    Hello,
    ReplyFrame,
    ResetFrame,
    Shown,
    StepFrame,
    Stepped,
    Verb,
    Welcome,
    decode_frame,
    decode_json_frame,
    encode_frame,
    encode_json_frame,
)
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE

ANN, BOB = new_token(), new_token()
IN_WORKER = "tests.serve.tally:IsolatedTally"
MEGABYTE = 2**20


def dial(server: EnvServer, token: str) -> connect:
    address = server.url.replace("http", "ws") + PATH
    return connect(address, additional_headers={"Authorization": f"Bearer {token}"}, compression=None, proxy=None)


def megabytes() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MEGABYTE


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


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.alone
async def test_a_costly_question_does_not_hold_others_up() -> None:
    pytest.importorskip("reasoning_gym")
    async with EnvServer("rg:chain_sum", [ANN, BOB]) as server:
        slow = RemoteEnv(f"{server.url}#rg:chain_sum", token=ANN)
        quick = RemoteEnv(f"{server.url}#rg:chain_sum", token=BOB)
        await quick.reset(seed=1)
        began = perf_counter()
        size = {"min_terms": 2_000_000, "max_terms": 2_000_000}
        with pytest.raises(UsageError, match="max_terms, min_terms"):
            await slow.reset(task=Task("rg:chain_sum", 1, params=size))
        await quick.reset(seed=2)
        assert perf_counter() - began < 4  # it was 5 s on a fast machine
        await slow.close()
        await quick.close()


# ------------------------------------------------------------------------------------------------------------------- quotas


async def test_one_token_cannot_take_every_session() -> None:
    async with EnvServer(REFERENCE, [ANN, BOB], limits=ServerLimits(max_sessions=4)) as server:
        sockets = [await dial(server, token) for token in (ANN, ANN, ANN, BOB)]
        answers = []
        for socket in sockets:
            await socket.send(encode_frame(Hello((1,), REFERENCE)))
            answers.append(decode_frame(bytes(await socket.recv()), FromServer))  # type: ignore[arg-type,unused-ignore]
        assert [type(answer) for answer in answers] == [Welcome, Welcome, Fault, Welcome]
        assert answers[2].code is Code.BUSY
        for socket in sockets:
            await socket.close()


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


async def unfinished(server: EnvServer, token: str, size: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has sent a frame of ``size`` bytes but for its end."""
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    key = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    upgrade = f"Authorization: Bearer {token}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    writer.write(f"GET {PATH} HTTP/1.1\r\nHost: x\r\n{upgrade}{key}\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"\x82\xff" + size.to_bytes(8, "big") + b"\0\0\0\0" + b"x" * (size - 10))
    return reader, writer


async def test_frames_that_never_end_are_bounded_per_token() -> None:
    limits = ServerLimits(max_unfinished=8 * MEGABYTE)
    async with EnvServer(REFERENCE, [ANN, BOB], limits=limits) as server:
        before = megabytes()
        attackers = [await unfinished(server, ANN, 4 * MEGABYTE) for _ in range(20)]
        ended = [asyncio.create_task(reader.read()) for reader, _ in attackers]
        async with asyncio.timeout(60):
            while sum(task.done() for task in ended) < 19:
                await asyncio.sleep(0.01)
        assert server.sessions.unfinished.held <= 4 * MEGABYTE
        assert megabytes() - before < 60  # the other ends of these connections are in this process too
        env = RemoteEnv(f"{server.url}#{REFERENCE}", token=BOB)
        await env.reset(task=Task(REFERENCE, 1))
        assert (await env.step("x" * MEGABYTE)).info["turn"] == 1
        await env.close()
        for task in ended:
            task.cancel()
        for _, writer in attackers:
            writer.close()
        async with asyncio.timeout(60):
            while server.sessions.unfinished.held:
                await asyncio.sleep(0.01)


async def test_bodies_that_never_end_are_bounded_too() -> None:
    limits = ServerLimits(max_unfinished=2 * MEGABYTE, max_message=MEGABYTE)
    async with EnvServer(REFERENCE, ANN, limits=limits) as server:
        host, port = server.url.removeprefix("http://").split(":")
        readers, writers = [], []
        for _ in range(4):
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ANN}\r\nContent-Length: {MEGABYTE}\r\n\r\n"
            writer.write(head.encode() + b"x" * (MEGABYTE - 10))
            readers.append(reader)
            writers.append(writer)
        answers = [asyncio.create_task(reader.readline()) for reader in readers]
        await asyncio.wait(answers, timeout=60, return_when=asyncio.FIRST_COMPLETED)
        assert b"HTTP/1.1 429 Too Many Requests\r\n" in {task.result() for task in answers if task.done()}
        assert server.sessions.unfinished.held <= 2 * MEGABYTE
        for writer in writers:
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


def call(server: EnvServer, session: ServerSession, seq: int, verb: Verb) -> ReplyFrame | Fault:
    frame = CallFrame(seq, seq, 10.0, verb)
    answer = decode_frame(server.sessions.take(session, frame, len(encode_frame(frame))), FromServer)
    assert isinstance(answer, ReplyFrame | Fault)
    return answer


async def test_small_calls_and_answers_of_many_sessions_are_bounded() -> None:
    limits = ServerLimits(max_remembered=8 * MEGABYTE, max_message=MEGABYTE)
    async with EnvServer(REFERENCE, [ANN, BOB], limits=limits) as server:
        owner, refusals = b"ann", []
        before = megabytes()
        for number in range(400):
            opened = server.sessions.hello(owner, Hello((1,), REFERENCE))
            assert not isinstance(opened, Fault)
            answer = call(server, opened[0], 1, ResetFrame(Task(REFERENCE, number)))
            if isinstance(answer, ReplyFrame):
                answer = call(server, opened[0], 2, StepFrame(f"{number}" + "x" * 60_000))
            if isinstance(answer, Fault):
                refusals.append(answer.message)
        assert 10 < 400 - len(refusals) < 100
        assert all("max_remembered" in refusal for refusal in refusals)
        assert server.sessions._remembered.held <= 4 * MEGABYTE
        assert megabytes() - before < 16
        other = server.sessions.hello(b"bob", Hello((1,), REFERENCE))
        assert not isinstance(other, Fault)
        assert isinstance(call(server, other[0], 1, ResetFrame(Task(REFERENCE, 1))), ReplyFrame)


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
            opened = server.sessions.hello(b"ann", Hello((1,), growing))
            assert not isinstance(opened, Fault)
            sessions.append(opened[0])
            assert isinstance(call(server, opened[0], 1, ResetFrame(Task(growing, 1))), ReplyFrame)
        assert isinstance(call(server, sessions[0], 2, StepFrame("700000")), ReplyFrame)
        lost = call(server, sessions[1], 2, StepFrame("700000"))
        assert isinstance(lost, Fault)
        assert (lost.code, str(lost.boundary)) == (Code.FAILED, "infrastructure")
        assert "max_remembered" in lost.message
        assert isinstance(call(server, sessions[0], 3, StepFrame("1")), ReplyFrame)
        assert isinstance(call(server, sessions[1], 3, ResetFrame(Task(growing, 1))), ReplyFrame)
        assert server.sessions._remembered.held < MEGABYTE


async def test_a_reset_of_another_environment_and_a_huge_action_are_refused() -> None:
    async with EnvServer(REFERENCE, ANN, limits=ServerLimits(max_action=1000)) as server:
        opened = server.sessions.hello(b"ann", Hello((1,), REFERENCE))
        assert not isinstance(opened, Fault)
        refused = call(server, opened[0], 1, ResetFrame(Task("os:system", 1)))
        assert isinstance(refused, Fault)
        assert (refused.code, REFERENCE in refused.message) == (Code.USAGE, True)
        assert isinstance(call(server, opened[0], 1, ResetFrame(Task(REFERENCE, 1))), ReplyFrame)
        refused = call(server, opened[0], 2, StepFrame("x" * 1001))
        assert isinstance(refused, Fault)
        assert (refused.code, "max_action" in refused.message) == (Code.TOO_LARGE, True)


@pytest.mark.parametrize("encode", [encode_frame, encode_json_frame])
def test_a_frame_of_many_small_values_is_refused_before_they_are_made(encode: Callable[[object], bytes]) -> None:
    read = decode_frame if encode is encode_frame else decode_json_frame
    kind = FromClient if encode is encode_frame else CallFrame
    fair = CallFrame(1, 1, 10.0, StepFrame("x" * MEGABYTE))
    assert read(encode(fair), kind) == fair
    hostile = encode(CallFrame(1, 1, 10.0, ResetFrame(Task(REFERENCE, 1, params={"x": [[]] * MEGABYTE}))))

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
        await socket.send(encode_frame(Hello((1,), REFERENCE)))
        await socket.recv()
        await socket.send(encode_frame(CallFrame(1, 1, 10.0, ResetFrame(Task(REFERENCE, 1)))))
        await socket.recv()
        socket.transport.pause_reading()
        connection = next(iter(server._door.connections))
        text = "x" * 200_000
        for seq in range(2, 80):
            socket.transport.write(_frame(encode_frame(CallFrame(seq, seq, 10.0, StepFrame(text)))))
        await asyncio.sleep(0.5)
        assert connection._transport.get_write_buffer_size() < 2 * MEGABYTE
        socket.transport.resume_reading()
        turns = [decode_frame(bytes(await socket.recv()), FromServer).result.info["turn"] for _ in range(78)]  # type: ignore[arg-type,unused-ignore]
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
                await socket.send(self._answer(decode_frame(message, FromClient)))
        except ConnectionClosed:
            pass

    def _answer(self, frame: object) -> bytes:
        if isinstance(frame, Hello):
            return encode_frame(Welcome(1, "0" * 32, frame.env, 0, 10.0, 60.0, 4 * MEGABYTE, 60.0))
        assert isinstance(frame, CallFrame)
        if isinstance(frame.verb, ResetFrame):
            return encode_frame(ReplyFrame(frame.seq, frame.request, Shown(self.text, {})))
        return encode_frame(ReplyFrame(frame.seq, frame.request, Stepped(self.text, 0.0, False, False, {})))


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
