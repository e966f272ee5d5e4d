"""Peers without a token in great numbers, against a server that may open few files, while others want to play.

The server runs in a process of its own with a hard limit on descriptors. Hostile peers send handshakes that are wrong in every
way we know, or connect and say nothing and connect again when they are cut off. Honest clients meanwhile ask for the health of
the server, open sessions, and play one that was open before; the slowest of their answers is what counts.
"""

import asyncio
import contextlib
import itertools
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from time import perf_counter
from typing import NamedTuple
from urllib.parse import urlsplit

from palestra.serve import RemoteEnv
from palestra.serve.tokens import new_token
from palestra.serve.wire import PATH
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE

ROOT = Path(__file__).parents[2]
PAUSE = 0.02
"""Seconds between two questions of an honest client."""

_UPGRADE = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
_KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"


def _head(*lines: str, path: str = PATH, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{''.join(lines)}\r\n".encode()


HANDSHAKES = [
    _head("Authorization: a\r\n" * 2, _UPGRADE, _KEY),
    _head("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n", _UPGRADE, _KEY),
    _head(_UPGRADE, _KEY),
    _head(_UPGRADE),
    _head(_UPGRADE, _KEY * 2),
    _head(_UPGRADE, "Sec-WebSocket-Key: \xff\r\n"),
    _head(_UPGRADE, _KEY, "Sec-WebSocket-Extensions: ;;;,\r\n"),
    _head(_UPGRADE, _KEY, "Sec-WebSocket-Version: 12\r\n"),
    _head(_UPGRADE, _KEY, "Upgrade: websocket\r\nConnection: ,;=\r\n"),
    _head(_UPGRADE, _KEY, "Authorization: Bearer \xe9\r\n"),
    _head(_UPGRADE, _KEY, path="/v1/session?\xc3"),
    _head(_UPGRADE, _KEY, "X: " + "y" * 9000 + "\r\n"),
    _head(_UPGRADE, _KEY, *(f"X{number}: y\r\n" for number in range(300))),
    _head(_UPGRADE, _KEY, "Content-Length: 5\r\n") + b"hello",
    _head(_UPGRADE, _KEY, "Transfer-Encoding: chunked\r\n"),
    _head("Upgrade: h2c\r\nConnection: Upgrade\r\n"),
    _head("Content-Length: -1\r\n", method="POST", path="/v1/sessions"),
    _head("X: " + "y" * 70_000 + "\r\n"),
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\0" * 512,
]
"""Each is refused, and costs the server nothing that stays."""


class Crowded(NamedTuple):
    """A server under attack."""

    pid: int
    url: str
    token: str
    log: Path

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return str(parts.hostname), parts.port or 0

    def megabytes(self) -> float:
        """Resident memory of the server."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Outcome(NamedTuple):
    """What honest clients and the operator saw."""

    worst: float
    """Seconds of the slowest answer to an honest client."""
    answers: int
    grown: float
    """Megabytes that the server's memory grew after its first tenth of the attack."""
    logged: int
    """Bytes in the server's log."""


@contextlib.asynccontextmanager
async def crowded(descriptors: int) -> AsyncIterator[Crowded]:
    """A server of ``Tally`` that may open ``descriptors`` files."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    token = new_token()
    with tempfile.TemporaryDirectory() as folder:
        file, log = Path(folder) / "token", Path(folder) / "log"
        file.touch(0o600)
        file.write_text(token)
        command = [sys.executable, "-m", "palestra.cli", "serve", REFERENCE, "--token-file", str(file)]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        with (
            log.open("w") as errors,
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, preexec_fn=limit
            ) as process,
        ):
            assert process.stdout is not None
            try:
                line = await asyncio.to_thread(process.stdout.readline)
                yield Crowded(process.pid, next(word for word in line.split() if "://" in word), token, log)
            finally:
                process.terminate()


async def attack(descriptors: int, handshakes: int, silent: int, seconds: float) -> Outcome:
    """Send ``handshakes`` and hold ``silent`` connections for at least ``seconds``, with honest clients throughout."""
    async with crowded(descriptors) as server, asyncio.TaskGroup() as group:
        answered: list[float] = []
        honest = [group.create_task(client(server, answered)) for client in (_health, _newcomer, _resident)]
        await _until(lambda: len(answered) > 10)
        async with _attackers(server, handshakes, silent) as reached:
            await reached()  # a tenth has been sent
            before, began = server.megabytes(), perf_counter()
            await reached()
            await _until(lambda: perf_counter() - began > seconds)
            grown = server.megabytes() - before
        for task in honest:
            task.cancel()
        logged = server.log.stat().st_size
    return Outcome(max(answered), len(answered), grown, logged)


@contextlib.asynccontextmanager
async def _attackers(server: Crowded, handshakes: int, silent: int) -> AsyncIterator[Callable[[], Awaitable[object]]]:
    """The hostile peers, in a process of their own: honest clients do not share an event loop with them."""
    command = [sys.executable, "-m", "tests.serve.crowd", server.url, str(handshakes), str(silent)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        yield process.stdout.readline
    finally:
        process.terminate()
        await process.wait()


async def _hostile(server: Crowded, handshakes: int, silent: int) -> None:
    async with asyncio.TaskGroup() as group:
        for _ in range(silent):
            group.create_task(_silent(server))
        for count in (handshakes // 10, handshakes - handshakes // 10):
            await _handshakes(server, count)
            print("sent", flush=True)


async def _until(true: Callable[[], bool]) -> None:
    while not true():
        await asyncio.sleep(PAUSE)


async def _handshakes(server: Crowded, count: int) -> None:
    kinds = itertools.islice(itertools.cycle(HANDSHAKES), count)

    async def send() -> None:
        for data in kinds:
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection(*server.address)
                writer.write(data)
                if data.endswith(b"\r\n\r\n"):  # the others are never answered
                    await reader.read(100)
                writer.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(send())


async def _silent(server: Crowded) -> None:
    while True:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection(*server.address)
            try:
                await reader.read()
            finally:
                writer.close()
        await asyncio.sleep(5.0)


async def _health(server: Crowded, answered: list[float]) -> None:
    while True:
        began = perf_counter()
        reader, writer = await asyncio.open_connection(*server.address)
        try:
            writer.write(_head("Connection: close\r\n", path="/health"))
            answer = await reader.read()
        finally:
            writer.close()
        assert answer.startswith(b"HTTP/1.1 200"), answer[:80]
        answered.append(perf_counter() - began)
        await asyncio.sleep(PAUSE)


async def _newcomer(server: Crowded, answered: list[float]) -> None:
    for seed in itertools.count():
        began = perf_counter()
        env = RemoteEnv(f"{server.url}#{REFERENCE}", token=server.token)
        try:
            await env.reset(task=Task(REFERENCE, seed))
            answered.append(perf_counter() - began)
        finally:
            await env.close()
        await asyncio.sleep(PAUSE)


async def _resident(server: Crowded, answered: list[float]) -> None:
    env = RemoteEnv(f"{server.url}#{REFERENCE}", token=server.token)
    try:
        await env.reset(task=Task(REFERENCE, 0))
        for turn in itertools.count():
            began = perf_counter()
            assert (await env.step(str(turn))).info["turn"] == turn + 1
            answered.append(perf_counter() - began)
            await asyncio.sleep(PAUSE)
    finally:
        await env.close()


if __name__ == "__main__":
    url, *counts = sys.argv[1:]
    asyncio.run(_hostile(Crowded(0, url, "", Path()), *map(int, counts)))
