"""Load for a WebSocket server on this machine: thousands of players in one process, each as cheap as Python allows.

A ``Player`` is an asyncio protocol that writes its frames by hand, so that the load costs less than what it loads. ``Echo``
plays against a bare echo server, ``Tallied`` against ours, where it checks every answer.
"""

import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Protocol

from tests.serve.tally import reward_of, told

from palestra.serve.wire import (
    PATH,
    CallFrame,
    FromServer,
    Hello,
    ReplyFrame,
    ResetFrame,
    StepFrame,
    Stepped,
    Welcome,
    decode_frame,
    encode_frame,
)
from palestra.trajectory import Task

__all__ = ["Echo", "Gate", "Player", "Tallied", "cpu_seconds", "play", "rss_megabytes"]

_TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK


def rss_megabytes(pid: int) -> float:
    """Resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Target(Protocol):
    """Where to play."""

    @property
    def token(self) -> str: ...

    @property
    def address(self) -> tuple[str, int]: ...


class Gate:
    """Opens when everybody has passed."""

    def __init__(self, expected: int) -> None:
        self._left = expected
        self._open = asyncio.Event()

    def passed(self) -> None:
        self._left -= 1
        if not self._left:
            self._open.set()

    async def wait(self) -> None:
        await self._open.wait()


class Player(asyncio.Protocol):
    """One connection: handshake, then ``begin``, then a frame for each frame that comes, until the steps are done."""

    def __init__(self, steps: int, token: str, ready: Gate, done: Gate) -> None:
        self.steps = steps
        self.token = token
        self.ready, self.done = ready, done
        self.turn = 0
        self.wrong = 0
        self.latencies: list[float] = []
        self.lost = False
        self._buffer = b""
        self._open = False
        self._sent = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(
            f"GET {PATH} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\nUpgrade: websocket\r\n"
            "Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )

    def connection_lost(self, error: Exception | None) -> None:
        if self.turn < self.steps:
            self.lost = True
            self.done.passed()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._open:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            assert b" 101 " in head.split(b"\r\n")[0], head
            self._open, self._buffer = True, rest
            self.begin()
        while (frame := self._next()) is not None:
            self.frame(frame)

    def _next(self) -> bytes | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, start = buffer[1] & 0x7F, 2
        if size == 126:
            if len(buffer) < 4:
                return None
            size, start = struct.unpack(">H", buffer[2:4])[0], 4
        if len(buffer) < start + size:
            return None
        self._buffer = buffer[start + size :]
        return buffer[start : start + size]

    def write(self, payload: bytes) -> None:
        size = len(payload)
        head = bytes((0x82, 0x80 | size)) if size < 126 else b"\x82\xfe" + struct.pack(">H", size)
        self.transport.write(head + b"\0\0\0\0" + payload)  # a mask of zeros leaves the payload as it is

    def go(self) -> None:
        """Play the first step."""
        self._sent = perf_counter()
        self.write(self.action())

    def stepped(self) -> None:
        self.turn += 1
        now = perf_counter()
        self.latencies.append(now - self._sent)
        if self.turn == self.steps:
            self.done.passed()
            return
        self._sent = now
        self.write(self.action())

    def begin(self) -> None:
        raise NotImplementedError

    def frame(self, data: bytes) -> None:
        raise NotImplementedError

    def action(self) -> bytes:
        raise NotImplementedError


class Echo(Player):
    """Sends what ``Tallied`` sends, and gets it back."""

    def begin(self) -> None:
        self.payload = encode_frame(CallFrame(seq=12345, request=12345, deadline=60.0, verb=StepFrame("\\boxed{12345}")))
        self.ready.passed()

    def frame(self, data: bytes) -> None:
        self.stepped()

    def action(self) -> bytes:
        return self.payload


class Tallied(Player):
    """Plays ``tests.serve.tally:Tally`` and counts the answers that are not its own."""

    env = "tests.serve.tally:Tally"
    seed = 0

    def begin(self) -> None:
        self.write(encode_frame(Hello(versions=(1,), env=self.env)))

    def frame(self, data: bytes) -> None:
        frame = decode_frame(data, FromServer)
        if isinstance(frame, Welcome):
            self.write(encode_frame(CallFrame(seq=1, request=1, deadline=60.0, verb=ResetFrame(Task(self.env, self.seed)))))
        elif isinstance(frame, ReplyFrame) and isinstance(frame.result, Stepped):
            turn, said = self.turn + 1, self._said(self.turn)
            expected = (turn + 1, told(self.seed, turn, said), reward_of(self.seed, turn, said))
            self.wrong += (frame.seq, frame.result.observation, frame.result.reward) != expected
            self.stepped()
        elif isinstance(frame, ReplyFrame):
            self.ready.passed()
        else:
            self.wrong += 1
            self.transport.close()

    def action(self) -> bytes:
        seq = self.turn + 2
        return encode_frame(CallFrame(seq=seq, request=seq, deadline=60.0, verb=StepFrame(self._said(self.turn))))

    def _said(self, turn: int) -> str:
        return f"\\boxed{{{self.seed % 1000 + turn}}}"


async def play(
    kind: type[Player], server: Target, sessions: int, steps: int, began: Callable[[], object] = lambda: None
) -> tuple[list[Player], float]:
    """``sessions`` players at once for ``steps`` steps each; the players, and the seconds from the first step to the last."""
    ready, done = Gate(sessions), Gate(sessions)
    loop = asyncio.get_running_loop()
    players: list[Player] = []
    for seed in range(sessions):
        _, player = await loop.create_connection(lambda: kind(steps, server.token, ready, done), *server.address)
        if isinstance(player, Tallied):
            player.seed = seed
        players.append(player)
    await ready.wait()
    began()
    start = perf_counter()
    for player in players:
        player.go()
    await done.wait()
    return players, perf_counter() - start
