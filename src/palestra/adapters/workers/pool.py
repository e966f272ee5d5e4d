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
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from palestra import core
from palestra.adapters.workers.zygote import (
    CONTROL,
    Boot,
    CallRequest,
    Declared,
    DeclaredRequest,
    Request,
    ResetRequest,
    StepRequest,
    WorkerReply,
)
from palestra.core import AsyncEnv, Env
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
from palestra.foundation.confidential import worker_variables
from palestra.foundation.encoding import clean_text, decode_msgpack, encode_msgpack
from palestra.foundation.processes.dialogue import Dialogue
from palestra.foundation.processes.frames import read_sized, sized
from palestra.foundation.references import search_path
from palestra.foundation.resources.sharing import SharedPerLoop
from palestra.foundation.seeding import fresh_seed
from palestra.trajectory import Content, Task

__all__ = ["InWorker", "WorkerPool"]

_ERROR_OF: dict[Boundary, type[EpisodeError]] = {
    error.boundary: error for error in (PolicyError, EnvError, ToolError, GraderError, InfrastructureError)
}
_MOST_REPLY = 2**30
"""Bytes of a reply."""


class _Worker:
    """The connection to one worker process."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self._dialogue: Dialogue[Request, WorkerReply] = Dialogue(
            reader, writer, lambda request: sized(encode_msgpack(request)), _read_reply
        )

    @property
    def busy(self) -> bool:
        """Whether a call is under way, or did not return. A worker that stays busy must be killed."""
        return self._dialogue.busy

    async def ask(self, request: Request) -> Any:
        """Send ``request`` and wait for its result. If the wait is cancelled, the worker stays ``busy``."""
        try:
            reply = await self._dialogue.ask(request)
        except ConnectionError:
            raise WorkerDied("the worker process ended in the middle of a call (crash, os._exit, or out of memory)") from None
        if reply.kind:
            raise _rebuild(reply)
        return reply.result

    def hang_up(self) -> None:
        self._dialogue.close()


async def _read_reply(reader: asyncio.StreamReader) -> WorkerReply:
    return decode_msgpack(await read_sized(reader, _MOST_REPLY), WorkerReply)


def _rebuild(reply: WorkerReply) -> Exception:
    if reply.usage:
        return (Unsupported if reply.kind == "Unsupported" else UsageError)(reply.error)
    error = _ERROR_OF[reply.boundary](reply.error)
    error.kind, error.detail = reply.kind, reply.detail
    return error


class WorkerPool:
    """The worker processes of one event loop. They exist while the pool has a user."""

    def __init__(self) -> None:
        self._control: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._idle: list[_Worker] = []
        self._started = 0

    @staticmethod
    def held() -> "contextlib.AbstractAsyncContextManager[WorkerPool]":
        """Share the pool of the running loop for the length of the block. The last user to leave ends every process."""
        return _pools.use(None)

    async def acquire(self) -> _Worker:
        """Return an idle worker, or a new one."""
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
            self._shut_down()  # the next call starts a new one
            raise WorkerDied("the process that forks the workers has ended (killed, or out of memory)") from None
        reader, writer = await asyncio.open_connection(sock=ours, limit=2**24)
        return _Worker(number, reader, writer)

    def give_back(self, worker: _Worker) -> None:
        """Keep ``worker`` for the next episode. Kill it if a call did not return."""
        if worker.busy or self._process is None:
            worker.hang_up()
            if self._control is not None:
                with contextlib.suppress(ConnectionError):
                    self._control.send(CONTROL.pack(b"K", worker.number))
        else:
            self._idle.append(worker)

    def _start_zygote(self) -> None:
        self._control, theirs = socket.socketpair()
        environment = {**worker_variables(), "PYTHONPATH": os.pathsep.join(search_path())}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"from palestra.adapters.workers.zygote import main; main({theirs.fileno()})"],
                env=environment,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for us; we end the workers ourselves
            )

    async def close(self) -> None:
        """End every process."""
        self._shut_down()

    def _shut_down(self) -> None:
        for worker in self._idle:
            worker.hang_up()
        self._idle.clear()
        if self._process is not None and self._control is not None:
            self._control.close()
            self._process.wait()
        self._process = self._control = None


_pools: SharedPerLoop[None, WorkerPool] = SharedPerLoop(lambda _: WorkerPool(), WorkerPool.close)


class InWorker(AsyncEnv):
    """A blocking ``Env`` in a worker process, which plays one episode after the other."""

    def __init__(
        self,
        entry: str,
        kwargs: Mapping[str, Any],
        kind: type[Env],
        *,
        max_turns: int | None = None,
        variables: Sequence[str] = (),
    ) -> None:
        main_path = _main_path() if entry.startswith("__main__:") else None
        named = {name: os.environ[name] for name in (*kind.variables, *variables) if name in os.environ}
        self._boot = Boot(entry, dict(kwargs), main_path, max_turns, named)
        self.kind = kind
        """The author's class, with the traits of this environment."""
        self._stack = contextlib.AsyncExitStack()
        self._pool: WorkerPool | None = None
        self._worker: _Worker | None = None
        self._declared = Declared.of_class(kind)
        """Declarations of the environment. Before the first reset: those of its class, as far as they need no object."""
        self._has_told = False

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self.task = task or Task(self._boot.entry, fresh_seed() if seed is None else seed)
        if self._pool is None:
            self._pool = await self._stack.enter_async_context(WorkerPool.held())
        if self._worker is None:
            await self._start(self._pool)
        content, info = await self._ask(ResetRequest(self.task))
        if not self._has_told:
            self._declared, self._has_told = msgspec.convert(await self._ask(DeclaredRequest()), Declared), True
        return _content(content), info

    @property
    def floor(self) -> float:
        return self._declared.floor

    @property
    def ceiling(self) -> float | None:
        return self._declared.ceiling

    @property
    def reward_range(self) -> tuple[float, float]:  # type: ignore[override]
        return self._declared.reward_range

    @property
    def score_range(self) -> tuple[float, float]:  # type: ignore[override]
        return self._declared.score_range

    async def _start(self, pool: WorkerPool) -> None:
        self._worker = worker = await pool.acquire()
        try:
            await worker.ask(self._boot)
        except Exception:  # there is no environment in it to be closed
            self._worker = None
            pool.give_back(worker)
            raise

    async def step(self, action: str) -> core.Step:
        observation, reward, terminated, truncated, info = await self._ask(StepRequest(clean_text(action)))
        return core.Step(_content(observation), reward, terminated, truncated, info)

    async def close(self) -> None:
        """End the episode. A worker with a call that did not return is killed, which frees its resources."""
        worker, pool = self._worker, self._pool
        self._worker = self._pool = None
        try:
            if worker is not None and not worker.busy:
                await worker.ask(CallRequest("close"))
        finally:
            if worker is not None and pool is not None:
                pool.give_back(worker)
            await self._stack.aclose()

    async def oracle(self) -> str:
        return str(await self._ask(CallRequest("oracle")))

    async def sample_random_action(self) -> str:
        return str(await self._ask(CallRequest("sample_random_action")))

    async def render(self) -> str:
        """Return what the environment draws."""
        return str(await self._ask(CallRequest("render")))

    async def seed_actions(self, seed: int) -> None:
        await self._ask(CallRequest("seed_actions", (seed,)))

    async def fork(self) -> AsyncEnv:
        raise Unsupported(
            f"{self.kind.__name__} runs in a worker process, where it cannot be forked. "
            f"palestra.make(id).fork() forks it in this process"
        )

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
