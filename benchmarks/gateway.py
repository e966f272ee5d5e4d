r"""What the gateway costs and survives: CPU per call over a bare server, growth within an episode, clients that misbehave.

    python benchmarks/gateway.py            # some minutes
    python benchmarks/gateway.py --quick    # under a minute: fewer calls and episodes

The engine and the renderer are stand-ins that take a few microseconds, which are counted: a byte is a token, and the reply is
scripted. The gateway runs in a process of its own over a socket; the load is in this one.
The bare server is the same socket and HTTP protocol in the same process; its application reads the body, decodes the JSON and
sends an answer of the same size. Both are measured back to back, so that the ratio is the same on any machine.
Left out: tokenizers, models, and a network that is not loopback.
"""

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import random
import resource
import statistics
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

import aiohttp  # noqa: E402
from rows import Row, finish  # noqa: E402

from palestra.agents import CallRole, Gateway, GatewayLimits, OpenEpisode, Recording  # noqa: E402
from palestra.agents.server import served  # noqa: E402
from palestra.core import EngineSession, Generation, Sampling  # noqa: E402
from palestra.foundation.encoding import Ints, floats, ints  # noqa: E402
from palestra.testing.scripted import ByteRenderer  # noqa: E402
from palestra.trajectory import Finish, Tokens  # noqa: E402

STOP = 0
BYTES = 8192
MESSAGES = 20
REPLY = [*b"A reply of the model, which the agent sends back.", STOP]


class Scripted:
    """An engine that takes no time. It remembers how many tokens it has sampled."""

    context_length = 2**30

    def __init__(self) -> None:
        self.sampled = 0

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        await asyncio.sleep(0)
        self.sampled += len(REPLY)
        return Generation(Tokens(prompt, ints(REPLY), floats([-1.0] * len(REPLY))), Finish.STOP)

    async def update_weights(self, source: Any, version: int) -> None: ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def close(self) -> None: ...


class Clock(NamedTuple):
    """What the server has used and holds."""

    cpu: float
    sampled: int
    open: int
    megabytes: float


def rss_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# ------------------------------------------------------------------------------------------------------------------ the server


ANSWER = json.dumps({"choices": [{"message": {"content": "x" * len(REPLY)}}], "filler": "x" * 300}).encode()


async def bare(scope: Any, receive: Any, send: Any) -> None:
    """Answer a call as any server must: read the body, decode it, answer."""
    body, more = b"", True
    while more:
        event = await receive()
        body += event.get("body", b"")
        more = event.get("more_body", False)
    json.loads(body)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


def serve(pipe: Any) -> None:
    """Serve a gateway. Commands come through ``pipe``."""
    asyncio.run(_serve(pipe))


async def _serve(pipe: Any) -> None:
    engine, renderer = Scripted(), ByteRenderer()
    gateway = Gateway(engine, renderer.with_tools, limits=GatewayLimits(write_seconds=2.0, read_seconds=10.0))
    loop = asyncio.get_running_loop()
    episodes: dict[int, OpenEpisode] = {}
    numbers = itertools.count()
    async with gateway.serving(), served(bare, "127.0.0.1", 0, GatewayLimits()) as bare_url:
        while True:
            command, value = await loop.run_in_executor(None, pipe.recv)
            if command == "open":
                opened = {next(numbers): gateway.open(seed=number) for number in range(value)}
                episodes.update(opened)
                pipe.send([(number, one.openai_url, one.key) for number, one in opened.items()])
            elif command == "close":
                pipe.send([_summary(await gateway.close(episodes.pop(number))) for number in value])
            elif command == "bare":
                pipe.send([(number, f"{bare_url}/v1", "none") for number in range(value)])
            elif command == "clock":
                pipe.send(Clock(time.process_time(), engine.sampled, len(gateway), rss_megabytes()))
            else:
                pipe.send(None)
                return


def _summary(recording: Recording) -> dict[str, int]:
    tokens = {str(role): sum(len(one.logprobs) for one in segments) for role, segments in recording.segments.items()}
    calls = len(recording.calls)
    doubled = sum(tokens.values()) - calls * len(REPLY)
    trained = len(recording.segments.get(CallRole.AGENT, ()))
    return {
        "calls": calls,
        "doubled": doubled,
        "segments": trained,
        "replayed": recording.replayed,
        "agent": tokens.get("agent", 0),
    }


class Server:
    """The gateway in its own process."""

    def __enter__(self) -> "Server":
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs,), daemon=True)
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ask("end", None)
        self._process.join(10)

    def clock(self) -> Clock:
        """What the server has used and holds."""
        found: Clock = self.ask("clock", None)
        return found

    def ask(self, command: str, value: Any) -> Any:
        self._pipe.send((command, value))
        return self._pipe.recv()


# -------------------------------------------------------------------------------------------------------------------- the load


def history(messages: int, size: int) -> list[dict[str, str]]:
    """``messages`` messages of ``size`` bytes in all, the last one by the user."""
    text = "x" * (size // messages)
    said = [{"role": "user" if at % 2 else "system" if at == 0 else "assistant", "content": text} for at in range(messages)]
    said[-1]["role"] = "user"
    return said


async def talk(
    session: aiohttp.ClientSession, url: str, key: str, calls: int, messages: list[dict[str, str]], size: int
) -> None:
    """Continue a conversation for ``calls`` calls."""
    headers = {"Authorization": f"Bearer {key}"}
    for _ in range(calls):
        async with session.post(
            f"{url}/chat/completions", json={"model": "m", "messages": messages}, headers=headers
        ) as answer:
            told = await answer.json()
            assert answer.status == 200, told
            said = told["choices"][0]["message"]["content"]
        messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "y" * size}]


async def cpu_per_call(server: Server, episodes: int, calls: int, command: str = "open") -> float:
    """CPU milliseconds of the gateway, or with ``bare`` of the bare server, per call of 20 messages and 8 kB."""
    opened = server.ask(command, episodes)
    before = server.clock()
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session, asyncio.TaskGroup() as group:
        for _, url, key in opened:
            # Each call has its own history, so that each is one of 20 messages.
            group.create_task(_fresh(session, url, key, calls))
    after = server.clock()
    if command == "open":
        server.ask("close", [number for number, *_ in opened])
    return 1000.0 * (after.cpu - before.cpu) / (episodes * calls)


async def _fresh(session: aiohttp.ClientSession, url: str, key: str, calls: int) -> None:
    """``calls`` calls whose histories have 20 messages: a window over one conversation."""
    said = history(MESSAGES, BYTES)
    for number in range(calls):
        said[-1] = {"role": "user", "content": f"{number:04d}" + "x" * (BYTES // MESSAGES - 4)}
        await talk(session, url, key, 1, list(said), 0)


async def growth(server: Server, episodes: int) -> float:
    """CPU of the 46th to 50th call over that of the 3rd to 7th; each call adds the same number of bytes."""
    opened = server.ask("open", episodes)
    seconds = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        talks = {number: history(2, 800) for number, *_ in opened}
        for calls in (2, 5, 38, 5):
            before = server.clock()
            async with asyncio.TaskGroup() as group:
                for number, url, key in opened:
                    group.create_task(talk(session, url, key, calls, talks[number], 400))
            after = server.clock()
            seconds.append(after.cpu - before.cpu)
    closed = server.ask("close", [number for number, *_ in opened])
    assert all(one["segments"] == 1 and one["calls"] == 50 for one in closed)
    return seconds[3] / seconds[1]


# -------------------------------------------------------------------------------------------------------------- bad clients


class Mischief:
    """Episodes whose clients disconnect, retry, duplicate and stall."""

    def __init__(self, session: aiohttp.ClientSession, seed: int) -> None:
        self.session = session
        self.random = random.Random(seed)

    async def episode(self, url: str, key: str, calls: int) -> int:
        """Play an episode to its end; return the number of calls that it was answered."""
        messages = [{"role": "user", "content": "Begin."}]
        headers = {"Authorization": f"Bearer {key}"}
        for _ in range(calls):
            stream = self.random.random() < 0.5
            body = json.dumps({"model": "m", "messages": messages, "stream": stream}).encode()
            said = await self._call(url, headers, body)
            messages += [{"role": "assistant", "content": said}, {"role": "user", "content": "Next."}]
        return calls

    async def _call(self, url: str, headers: dict[str, str], body: bytes) -> str:
        kind = self.random.random()
        if kind < 0.15:
            await self._vanish(url, headers, body)
        elif kind < 0.3:
            async with asyncio.TaskGroup() as group:
                twice = [group.create_task(self._read(url, headers, body)) for _ in range(2)]
            first, second = [task.result() for task in twice]
            assert first == second
            return first
        elif kind < 0.4:
            await self._read(url, headers, body)  # the answer is lost, and the client asks again
            headers = {**headers, "x-stainless-retry-count": "1"}
        elif kind < 0.42:
            await self._stall(url, headers)
        return await self._read(url, headers, body)

    async def _read(self, url: str, headers: dict[str, str], body: bytes) -> str:
        async with self.session.post(f"{url}/chat/completions", data=body, headers=headers) as answer:
            data = await answer.read()
            assert answer.status == 200, data
        if not data.startswith(b"{"):
            chunks = [json.loads(line[6:]) for line in data.splitlines() if line.startswith(b"data: {")]
            return "".join(one["choices"][0]["delta"].get("content") or "" for one in chunks if one["choices"])
        text: str = json.loads(data)["choices"][0]["message"]["content"]
        return text

    async def _vanish(self, url: str, headers: dict[str, str], body: bytes) -> None:
        """Send a request and close the connection."""
        _, writer = await self._connected(url, headers, len(body))
        writer.write(body[: self.random.randrange(len(body) + 1)])
        if self.random.random() < 0.5:
            writer.write(b"")
            await writer.drain()
        writer.transport.abort()

    async def _stall(self, url: str, headers: dict[str, str]) -> None:
        """Announce a body and never send it."""
        reader, writer = await self._connected(url, headers, 1000)
        assert b" 408 " in (await reader.read(4096)).partition(b"\r\n")[0]
        writer.close()

    async def _connected(
        self, url: str, headers: dict[str, str], size: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        place, _, path = url.removeprefix("http://").partition("/")
        host, _, port = place.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        lines = [f"POST /{path}/chat/completions HTTP/1.1", "Host: x", f"Authorization: {headers['Authorization']}"]
        writer.write("\r\n".join([*lines, f"Content-Length: {size}", "", ""]).encode())
        return reader, writer


async def survive(server: Server, episodes: int, calls: int, together: int) -> dict[str, float]:
    """Play ``episodes`` episodes with bad clients and count what was lost or doubled."""
    begun = server.clock()
    lost = doubled = segments = replayed = done = 0
    memory = []
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        for first in range(0, episodes, together):
            opened = server.ask("open", min(together, episodes - first))
            async with asyncio.TaskGroup() as group:
                for number, url, key in opened:
                    group.create_task(Mischief(session, number).episode(url, key, calls))
            for one in server.ask("close", [number for number, *_ in opened]):
                lost += one["agent"] != calls * len(REPLY)
                doubled += one["doubled"] != 0 or one["calls"] != calls
                segments += one["segments"]
                replayed += one["replayed"]
                done += 1
            memory.append(server.clock().megabytes)
    ended = server.clock()
    unrecorded = (ended.sampled - begun.sampled) - done * calls * len(REPLY)
    half = memory[len(memory) // 2]
    return {
        "episodes": done,
        "lost": lost,
        "doubled": doubled,
        "tokens sampled twice": unrecorded,
        "left open": ended.open,
        "segments": segments / done,
        "replayed": replayed,
        "memory growth": memory[-1] - half,
    }


async def measure(quick: bool) -> list[Row]:
    rows: list[Row] = []
    with Server() as server:
        await cpu_per_call(server, 8, 4)  # everything is imported and warm
        for episodes, calls in ((64, 20 if quick else 60), (1024, 2 if quick else 6)):
            rounds = [
                (await cpu_per_call(server, episodes, calls, "bare"), await cpu_per_call(server, episodes, calls))
                for _ in range(3 if quick else 7)
            ]
            ratio = statistics.median(gateway / bare for bare, gateway in rounds)
            rows.append(Row(f"CPU per call over a bare server, {episodes} episodes at once", ratio, "<= 3"))
            rows.append(Row("the same, ms", min(gateway for _, gateway in rounds), ""))
        ratio = min([await growth(server, 16 if quick else 64) for _ in range(2 if quick else 4)])
        rows.append(Row("50th call over the 5th, equal new bytes", ratio, "<= 1.5"))
        found = await survive(server, 300 if quick else 10_000, 6, 100 if quick else 250)
        rows.append(Row("episodes with bad clients", found["episodes"], ""))
        for name in ("lost", "doubled", "tokens sampled twice", "left open"):
            rows.append(Row(name, found[name], "<= 0"))
        rows.append(Row("segments per episode", found["segments"], ""))
        rows.append(Row("requests answered from memory", found["replayed"], ""))
        rows.append(Row("memory growth in the second half, MB", found["memory growth"], "<= 10"))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    finish(asyncio.run(measure(quick)))


if __name__ == "__main__":
    main()
