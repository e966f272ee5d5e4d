r"""Decide whether two mathematical answers are the same.

Most answers are decided at once (``answers``): texts that differ only in notation, or two plain numbers. The others are split
into pairs of formulas for math-verify, which runs in worker processes with a time limit. A hostile answer costs its own
time limit and one worker, which is replaced before the next question; it cannot affect other answers. If all workers die at
once, as when the machine runs out of memory, every waiting question fails as infrastructure, and the next question starts new
workers.
"""

import asyncio
import contextlib
import socket
import subprocess
import sys
from importlib import util
from pathlib import Path
from types import TracebackType

import msgspec

from palestra.errors import InfrastructureError, MissingExtra
from palestra.foundation.encoding import clean_text
from palestra.foundation.installation import how_to_install
from palestra.grading.answers import Demand, reduced
from palestra.grading.readings import Readings

__all__ = ["MathsGrader"]

_START_SECONDS = 120.0
_STARVED_SECONDS = 30.0
"""Seconds to wait in all for a worker that gets no CPU time."""


class _WorkerSocket:
    """The socket to one worker, and to its replacements."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.asked = False
        """Whether a question waits for its answer."""

    async def ask(self, demand: Demand, seconds: float) -> str:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError):
            while self.connection.recv(16):  # messages about a worker that died while it was idle
                pass
        request = msgspec.json.encode(demand)
        await loop.sock_sendall(self.connection, len(request).to_bytes(4, "big") + request)
        async with asyncio.timeout(seconds):
            return (await loop.sock_recv(self.connection, 1)).decode()


class _WorkerGroup:
    """One process with its workers and the queue of free ones. A group that died is not used again."""

    def __init__(self, count: int, seconds: float) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        theirs = [pair[1] for pair in pairs]
        self._workers = [_WorkerSocket(pair[0]) for pair in pairs]
        self._free: asyncio.Queue[_WorkerSocket | None] = asyncio.Queue()
        self._closed = False
        command = [sys.executable, str(Path(__file__).with_name("maths_worker.py")), str(seconds)]
        try:
            self.process = subprocess.Popen(
                [*command, *(str(end.fileno()) for end in theirs)],
                env={"PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[end.fileno() for end in theirs],
                start_new_session=True,
            )
        except BaseException:
            for worker in self._workers:
                worker.connection.close()
            raise
        finally:
            for end in theirs:
                end.close()

    async def serve(self) -> None:
        """Wait until every worker is ready."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_START_SECONDS):
            for worker in self._workers:
                worker.connection.setblocking(False)
                if await loop.sock_recv(worker.connection, 1) != b"R":
                    raise InfrastructureError("the workers that compare formulas did not start")
                self._free.put_nowait(worker)

    async def ask(self, demand: Demand) -> str:
        """Return the letter that a free worker answers; empty if the group is dead."""
        worker = await self._free.get()
        if worker is None:
            self._free.put_nowait(None)  # for the next caller that waits
            return ""
        worker.asked = True
        try:
            reply = await worker.ask(demand, _STARVED_SECONDS)
        except (TimeoutError, OSError):
            reply = ""
        except asyncio.CancelledError:
            # The answer is still to come, and the next question must not receive it.
            self._late(worker)
            raise
        finally:
            worker.asked = False
        if reply and not self._closed:
            self._free.put_nowait(worker)
        else:
            worker.connection.close()
        return reply

    def _late(self, worker: _WorkerSocket) -> None:
        if self._closed:
            worker.connection.close()
            return
        loop = asyncio.get_running_loop()

        def answered() -> None:
            loop.remove_reader(worker.connection)
            self._free.put_nowait(worker)

        loop.add_reader(worker.connection, answered)

    async def close(self) -> None:
        """End the workers. Questions that wait get an empty reply at once."""
        self._closed = True
        self._free.put_nowait(None)
        for worker in self._workers:
            if worker.asked:  # a question waits on this socket: it reads end-of-file and closes the socket
                with contextlib.suppress(OSError):
                    worker.connection.shutdown(socket.SHUT_RDWR)
            elif worker.connection.fileno() != -1:
                asyncio.get_running_loop().remove_reader(worker.connection)
                worker.connection.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(self.process.wait), 5.0)
        except TimeoutError:
            self.process.kill()


class MathsGrader:
    """Compare answers in ``workers`` processes, each comparison within ``seconds`` of CPU time."""

    def __init__(self, *, workers: int = 2, seconds: float = 0.5) -> None:
        self._count = workers
        self._seconds = seconds
        self._group: _WorkerGroup | None = None
        self._starting = asyncio.Lock()
        self.counts = {"quick": 0, "worker": 0, "timeout": 0, "error": 0}
        """Number of answers by the way in which they were decided."""

    async def __aenter__(self) -> "MathsGrader":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the workers and wait until they are ready, which takes as long as importing sympy."""
        await self._started()

    async def _started(self) -> _WorkerGroup:
        async with self._starting:
            if self._group is None:
                if util.find_spec("math_verify") is None:
                    raise MissingExtra(f"comparing formulas needs math-verify: {how_to_install('math')}")
                group = _WorkerGroup(self._count, self._seconds)
                try:
                    await group.serve()
                except BaseException:
                    group.process.kill()
                    await group.close()
                    raise
                self._group = group
            return self._group

    async def equivalent(self, answer: str, gold: str, readings: Readings | None = None) -> bool:
        """Return whether ``answer`` means the same as ``gold``; docs/reference/equality.md states what does.

        An answer that is unreadable or takes too long does not. ``readings`` says what only the question could tell.
        """
        demands = reduced(clean_text(answer), clean_text(gold), readings or Readings())
        if isinstance(demands, bool):
            self.counts["quick"] += 1
            return demands
        for demand in demands:
            self.counts["worker"] += 1
            reply = await self._ask(demand)
            if reply in "TN":
                self.counts["timeout"] += 1
            elif reply == "E":
                self.counts["error"] += 1
            if reply != "1":
                return False
        return True

    async def _ask(self, demand: Demand) -> str:
        group = await self._started()
        reply = await group.ask(demand)
        if not reply:
            if self._group is group:
                await self.close()
            raise InfrastructureError("the workers that compare formulas died; new ones start with the next answer")
        return reply

    async def close(self) -> None:
        """End the workers."""
        group, self._group = self._group, None
        if group is not None:
            await group.close()
