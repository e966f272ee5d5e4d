"""Blocking environments, each in a worker process that can be killed, since a thread cannot be.

Workers are forked from one zygote (see ``zygote.py``), host one environment at a time, and are used again for the next
episode. A worker whose call was abandoned (the episode's deadline passed) is killed, and a worker that dies is reported as
``WorkerDied``; neither touches any other episode.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from palestra import core
from palestra.core import AsyncEnv, Env
from palestra.encoding import clean_text, decode_msgpack, encode_msgpack
from palestra.errors import (
    Boundary,
    EnvError,
    EpisodeError,
    GraderError,
    InfrastructureError,
    PolicyError,
    ToolError,
    Unsupported,
    UsageError,
    WorkerDied,
)
from palestra.seeding import fresh_seed
from palestra.trajectory import Content, Task
from palestra.views.zygote import CONTROL, HEADER, Boot, Call, Reply, Request, Reset, Step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ["InWorker", "WorkerPool"]

_ERROR_OF: dict[Boundary, type[EpisodeError]] = {
    error.boundary: error for error in (PolicyError, EnvError, ToolError, GraderError, InfrastructureError)
}


class _Worker:
    """One worker process, as its user sees it: requests in, replies out, in order."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer
        self.busy = False

    async def ask(self, request: Request) -> Any:
        """Send ``request`` and wait for its result. Stays ``busy`` if the wait is cancelled: then only killing helps."""
        frame = encode_msgpack(request)
        self.busy = True
        try:
            self._writer.write(HEADER.pack(len(frame)) + frame)
            (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            reply = decode_msgpack(await self._reader.readexactly(length), Reply)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise WorkerDied("the worker process ended in the middle of a call (crash, os._exit, or out of memory)") from None
        self.busy = False
        if reply.kind:
            raise _rebuild(reply)
        return reply.result

    def hang_up(self) -> None:
        self._writer.close()


def _rebuild(reply: Reply) -> Exception:
    if reply.usage:
        return (Unsupported if reply.kind == "Unsupported" else UsageError)(reply.error)
    error = _ERROR_OF[reply.boundary](reply.error)
    error.kind, error.detail = reply.kind, reply.detail
    return error


class WorkerPool:
    """The worker processes of one event loop. They exist while somebody holds the pool."""

    _pools: ClassVar["WeakKeyDictionary[asyncio.AbstractEventLoop, WorkerPool]"] = WeakKeyDictionary()

    def __init__(self) -> None:
        self._holders = 0
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: list[_Worker] = []
        self._started = 0

    @classmethod
    @asynccontextmanager
    async def held(cls) -> "AsyncIterator[WorkerPool]":
        """The pool of the running loop, kept alive for the length of the block. The last holder ends every process."""
        loop = asyncio.get_running_loop()
        pool = cls._pools.setdefault(loop, cls())
        pool._holders += 1
        try:
            yield pool
        finally:
            pool._holders -= 1
            if not pool._holders:
                pool._shut_down()

    async def acquire(self) -> _Worker:
        """A worker that is waiting, or a new one."""
        if self._idle:
            return self._idle.pop()
        if self._process is None:
            self._start_zygote()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        self._started += 1
        number = self._started  # others may start workers while this one is being connected
        try:
            with theirs:
                socket.send_fds(self._control, [CONTROL.pack(b"S", number)], [theirs.fileno()])
        except ConnectionError:
            ours.close()
            self._shut_down()  # the next one to ask starts anew
            raise WorkerDied("the process that forks the workers has ended (killed, or out of memory)") from None
        reader, writer = await asyncio.open_connection(sock=ours, limit=2**24)
        return _Worker(number, reader, writer)

    def give_back(self, worker: _Worker) -> None:
        """Keep ``worker`` for the next episode, or kill it if it never answered."""
        if worker.busy or self._process is None:
            worker.hang_up()
            if self._control is not None:
                with contextlib.suppress(ConnectionError):
                    self._control.send(CONTROL.pack(b"K", worker.number))
        else:
            self._idle.append(worker)

    def _start_zygote(self) -> None:
        self._control, theirs = socket.socketpair()
        # The workers import what this process can import: the same search path, scripts' folders included.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part or os.getcwd() for part in sys.path)}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", f"from palestra.views.zygote import main; main({theirs.fileno()})"],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for us; we end the workers ourselves
            )

    def _shut_down(self) -> None:
        for worker in self._idle:
            worker.hang_up()
        self._idle.clear()
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.wait()
        self._process = self._control = None


class InWorker(AsyncEnv):
    """A blocking ``Env``, named by a reference, hosted by a worker process for one episode after another."""

    def __init__(self, entry: str, kwargs: Mapping[str, Any], kind: type[Env]) -> None:
        self._boot = Boot(entry, dict(kwargs), _main_path() if entry.startswith("__main__:") else None)
        self.kind = kind
        """The author's class, whose traits hold for this view."""
        self._stack = contextlib.AsyncExitStack()
        self._pool: WorkerPool | None = None
        self._worker: _Worker | None = None

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self.task = task or Task(self._boot.entry, fresh_seed() if seed is None else seed)
        if self._pool is None:
            self._pool = await self._stack.enter_async_context(WorkerPool.held())
        if self._worker is None:
            await self._start(self._pool)
        content, info = await self._ask(Reset(self.task))
        return _content(content), info

    async def _start(self, pool: WorkerPool) -> None:
        self._worker = worker = await pool.acquire()
        try:
            await worker.ask(self._boot)
        except Exception:  # there is no environment in it to be closed
            self._worker = None
            pool.give_back(worker)
            raise

    async def step(self, action: str) -> core.Step:
        observation, reward, terminated, truncated, info = await self._ask(Step(clean_text(action)))
        return core.Step(_content(observation), reward, terminated, truncated, info)

    async def close(self) -> None:
        """End the episode. A worker that does not answer any more is killed, which frees all it held."""
        worker, pool = self._worker, self._pool
        self._worker = self._pool = None
        try:
            if worker is not None and not worker.busy:
                await worker.ask(Call("close"))
        finally:
            if worker is not None and pool is not None:
                pool.give_back(worker)
            await self._stack.aclose()

    async def oracle(self) -> str:
        return str(await self._ask(Call("oracle")))

    async def sample_random_action(self) -> str:
        return str(await self._ask(Call("sample_random_action")))

    async def seed_actions(self, seed: int) -> None:
        await self._ask(Call("seed_actions", (seed,)))

    async def healthy(self) -> bool:
        return self._worker is not None and not self._worker.busy

    async def _ask(self, request: Request) -> Any:
        if self._worker is None:
            raise UsageError("this environment has not been reset, or has been closed")
        return await self._worker.ask(request)


def _content(value: Any) -> Content:
    return value if isinstance(value, str) else decode_msgpack(encode_msgpack(value), Content)  # type: ignore[arg-type]


def _main_path() -> str | None:
    path: str | None = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise UsageError(
            "a blocking environment runs in a worker process, which cannot see classes typed into a notebook or a shell: "
            "move it into a module"
        )
    return os.path.abspath(path)
