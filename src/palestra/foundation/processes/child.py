"""A process that answers questions on its standard streams, in a session of its own."""

import asyncio
import os
import signal
import socket
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from typing import Generic, TypeVar

from palestra.foundation.processes.dialogue import Dialogue

__all__ = ["Child"]

Q = TypeVar("Q")
A = TypeVar("A")

_KEPT_BYTES = 1000
_CLEAN_UP_SECONDS = 1.0
"""The time that processes which the child has started have to end by themselves, once it has ended."""
_POLL_SECONDS = 0.01


class Child(Generic[Q, A]):
    """A process. ``start`` starts it; whoever starts it calls ``end`` or ``kill``."""

    def __init__(self, process: "subprocess.Popen[bytes]", dialogue: Dialogue[Q, A], words: "_LastWords") -> None:
        self._process = process
        self._dialogue = dialogue
        self._words = words
        self.alive = True
        """Whether it may answer: it was not killed, and every question so far has had its answer."""

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        variables: Mapping[str, str],
        pack: Callable[[Q], bytes],
        read: Callable[[asyncio.StreamReader], Awaitable[A]],
        *,
        most_bytes: int,
    ) -> "Child[Q, A]":
        """Start ``command`` with these environment variables.

        Its standard input and output are one socket, its standard error is a pipe. ``pack`` and ``read`` are as in
        ``Dialogue``; ``most_bytes`` is the limit of what is read ahead.

        Raises:
            OSError: The command cannot be started.
        """
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = _process(command, variables, theirs)
        except BaseException:
            ours.close()
            raise
        assert process.stderr is not None
        words = _LastWords()
        try:
            await asyncio.get_running_loop().connect_read_pipe(lambda: words, process.stderr)
            reader, writer = await asyncio.open_connection(sock=ours, limit=most_bytes)
        except BaseException:
            ours.close()
            _signal_group(process.pid)
            process.wait()
            words.close()
            process.stderr.close()
            raise
        return cls(process, Dialogue(reader, writer, pack, read), words)

    @property
    def pid(self) -> int:
        """The id of the process, and of its process group."""
        return self._process.pid

    @property
    def printed(self) -> str:
        """The end of what the process has printed to its standard error since its last answer."""
        return bytes(self._words.kept).decode(errors="replace").strip()

    async def ask(self, question: Q, seconds: float) -> A:
        """Return the answer to ``question``. If there is none, the process is killed.

        Raises:
            TimeoutError: The process does not answer within ``seconds``.
            ConnectionError: The process has ended, or has sent what is not an answer.
        """
        try:
            answer = await self._dialogue.ask(question, seconds)
        finally:
            if not self._dialogue.sound:
                await self.kill()
        self._words.kept.clear()
        return answer

    async def end(self, seconds: float) -> None:
        """Close the input, so that the process can clean up. Kill it if it has not ended after ``seconds``."""
        try:
            if self.alive:
                self._dialogue.end_input()
                await _until(self._has_ended, seconds)
        finally:
            await self.kill()

    async def kill(self) -> None:
        """Kill the process, and a little later what it has left behind. A second call does nothing."""
        if not self.alive:
            return
        self.alive = False
        self._dialogue.close()
        try:
            self._process.kill()
            await _until(self._has_ended, inf)
            await _until(lambda: not _group_exists(self.pid), _CLEAN_UP_SECONDS)
        finally:
            _signal_group(self.pid)
            self._words.close()
            await self._words.closed.wait()
            await self._dialogue.wait_closed()

    def _has_ended(self) -> bool:
        # Not asyncio's own subprocess: until Python 3.12, its wait() lasts until no process holds a pipe of the child.
        return self._process.poll() is not None


async def _until(holds: Callable[[], bool], seconds: float) -> None:
    """Wait until a condition holds, for at most ``seconds``."""
    deadline = monotonic() + seconds
    while not holds() and monotonic() < deadline:  # noqa: ASYNC110 - the kernel tells nobody that a process group is empty
        await asyncio.sleep(_POLL_SECONDS)


def _process(command: Sequence[str], variables: Mapping[str, str], end: socket.socket) -> "subprocess.Popen[bytes]":
    # A session of its own: its process group can be killed, and Ctrl-C is for us, who then end it.
    fd = end.fileno()
    return subprocess.Popen(
        command, stdin=fd, stdout=fd, stderr=subprocess.PIPE, bufsize=0, env=dict(variables), start_new_session=True
    )


def _signal_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


class _LastWords(asyncio.Protocol):
    """The end of what comes out of a pipe."""

    def __init__(self) -> None:
        self.kept = bytearray()
        self.closed = asyncio.Event()
        self._transport: asyncio.BaseTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.kept += data[-_KEPT_BYTES:]
        del self.kept[:-_KEPT_BYTES]

    def connection_lost(self, error: Exception | None) -> None:
        self.closed.set()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
