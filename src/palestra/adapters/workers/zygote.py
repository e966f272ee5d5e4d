"""The child side of worker processes: a single-threaded parent that forks them, and the loop each of them runs.

``main(FD)``, run in a new interpreter, imports Palestra once and then forks a worker on request. A fork takes milliseconds; a
new interpreter takes half a second. The zygote lives as long as the other end of the control socket ``FD``: when that closes,
for whatever reason, it kills every worker.

Control messages are five bytes: ``S`` or ``K`` and a worker's number. ``S`` (spawn) carries the worker's own socket as an
ancillary file descriptor; ``K`` kills the worker and whatever it started. Only this process kills and reaps, so a number is
never confused with the pid of another process.

A worker answers one request at a time: a frame is a length and msgpack, the types are below. Nothing is pickled.
"""

import os
import selectors
import signal
import socket
import struct
import sys
from typing import Any

import msgspec

from palestra.adapters.limited import Limited
from palestra.core import AsyncEnv, Env
from palestra.errors import Boundary, UsageError
from palestra.foundation.encoding import decode_msgpack, encode_msgpack, tame
from palestra.foundation.processes.frames import receive_sized, sized
from palestra.foundation.references import load_main, resolve
from palestra.trajectory import Failure, Phase, Task

__all__ = [
    "CONTROL",
    "Boot",
    "CallRequest",
    "Declared",
    "DeclaredRequest",
    "Request",
    "ResetRequest",
    "StepRequest",
    "WorkerReply",
    "main",
]

CONTROL = struct.Struct("<cI")

_COMMON = dict(os.environ)
"""What every worker gets."""


class Boot(msgspec.Struct, frozen=True, tag="boot"):
    """Build the environment that a reference names."""

    entry: str
    kwargs: dict[str, Any]
    main_path: str | None
    """The script to load where the reference is into ``__main__``."""
    max_turns: int | None = None
    """The turn limit that was registered."""
    variables: dict[str, str] = {}
    """Environment variables for this environment, besides those that every worker gets."""


class ResetRequest(msgspec.Struct, frozen=True, tag="reset"):
    """Begin an episode."""

    task: Task


class StepRequest(msgspec.Struct, frozen=True, tag="step"):
    """Take an action."""

    action: str


class CallRequest(msgspec.Struct, frozen=True, tag="call"):
    """Any other verb."""

    verb: str
    arguments: tuple[int, ...] = ()


class DeclaredRequest(msgspec.Struct, frozen=True, tag="declared"):
    """Return what the author's object declares. Its reset may have set it."""


class Declared(msgspec.Struct, frozen=True):
    """Scores as an environment declares them."""

    floor: float = 0.0
    ceiling: float | None = None
    reward_range: tuple[float, float] = Env.reward_range
    score_range: tuple[float, float] = Env.score_range

    @classmethod
    def of(cls, env: Env | AsyncEnv) -> "Declared":
        return cls(env.floor, env.ceiling, env.reward_range, env.score_range)

    @classmethod
    def of_class(cls, kind: type[Env]) -> "Declared":
        """Declarations of ``kind`` that need no object. A property needs one."""
        plain = {name: getattr(kind, name) for name in cls.__struct_fields__}
        return cls(**{name: value for name, value in plain.items() if not isinstance(value, property)})


Request = Boot | ResetRequest | StepRequest | CallRequest | DeclaredRequest


class WorkerReply(msgspec.Struct, frozen=True):
    """Answer to a request: a result, or an error with its boundary."""

    result: Any = None
    error: str = ""
    kind: str = ""
    detail: str = ""
    boundary: Boundary = Boundary.ENV
    usage: bool = False
    """The caller's mistake (an unsupported verb, say), not a failure."""


# ---------------------------------------------------------------------------------------------------------- one worker


def serve_worker(connection: socket.socket) -> None:
    """Answer requests until the other end hangs up."""
    env: Env | None = None
    with connection, connection.makefile("rb") as incoming:
        while (message := receive_sized(incoming)) is not None:
            request: Request = decode_msgpack(message, Request)  # type: ignore[arg-type]
            if isinstance(request, Boot):
                env, reply = _boot(request)
            else:
                assert env is not None, "the first request is Boot"
                reply = _answer(env, request)
            connection.sendall(sized(_encode(reply)))


def _boot(request: Boot) -> tuple[Env | None, WorkerReply]:
    try:
        os.environ.clear()  # of what the last environment of this worker was given
        os.environ.update(_COMMON | request.variables)
        if request.main_path is not None:
            load_main(request.main_path)
        env = Limited(resolve(request.entry)(**request.kwargs), request.max_turns)
    except BaseException as error:  # noqa: BLE001 - no exit of the environment's is an exit of the worker
        return None, _failure(error)
    return env, WorkerReply()


def _answer(env: Env, request: Request) -> WorkerReply:
    try:
        if isinstance(request, StepRequest):
            return WorkerReply(tuple(env.step(request.action)))
        if isinstance(request, ResetRequest):
            return WorkerReply(env.reset(task=request.task))
        if isinstance(request, DeclaredRequest):
            return WorkerReply(Declared.of(env.unwrapped))
        assert isinstance(request, CallRequest)
        return WorkerReply(getattr(env, request.verb)(*request.arguments))
    except BaseException as error:  # noqa: BLE001 - as above
        return _failure(error)


def _failure(error: BaseException) -> WorkerReply:
    failure = Failure.of(error, Phase.STEP)  # the parent knows the phase
    return WorkerReply(
        error=failure.message,
        kind=failure.kind,
        detail=failure.detail,
        boundary=failure.boundary,
        usage=issubclass(type(error), UsageError),
    )


def _encode(reply: WorkerReply) -> bytes:
    try:
        return encode_msgpack(reply)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return encode_msgpack(msgspec.structs.replace(reply, result=tame(reply.result)))


# ------------------------------------------------------------------------------------------------------------ the zygote


class _Zygote:
    """Forks workers on request, kills them on request, reaps them always."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.pids: dict[int, int] = {}

    def run(self) -> None:
        child_ended, wake = socket.socketpair()
        child_ended.setblocking(False)
        wake.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self.control, selectors.EVENT_READ)
            selector.register(child_ended, selectors.EVENT_READ)
            open_for_orders = True
            while open_for_orders:
                for key, _ in selector.select():
                    if key.fileobj is self.control:
                        open_for_orders = self._order(child_ended, wake)
                    else:
                        child_ended.recv(4096)
                self._reap()
        for number in list(self.pids):
            self._kill(number)

    def _order(self, *not_for_the_child: socket.socket) -> bool:
        data, fds, _, _ = socket.recv_fds(self.control, CONTROL.size, 1)
        if not data:
            return False
        order, number = CONTROL.unpack(data)
        if order == b"K":
            self._kill(number)
        else:
            self._spawn(number, fds[0], not_for_the_child)
        return True

    def _spawn(self, number: int, fd: int, not_for_the_child: tuple[socket.socket, ...]) -> None:
        pid = os.fork()
        if pid:
            os.close(fd)
            self.pids[number] = pid
            return
        status = 1
        try:
            # A session of its own, so that killing the worker also kills what the environment started (a JVM, a browser).
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for inherited in (self.control, *not_for_the_child):
                inherited.close()
            serve_worker(socket.socket(fileno=fd))
            status = 0
        except ConnectionError:
            status = 0
        finally:
            sys.stderr.flush()
            os._exit(status)

    def _kill(self, number: int) -> None:
        pid = self.pids.pop(number, None)
        if pid is None:
            return
        for kill in (os.killpg, os.kill):  # the group does not exist yet if the worker was only just forked
            try:
                kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            break
        os.waitpid(pid, 0)

    def _reap(self) -> None:
        for number, pid in list(self.pids.items()):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del self.pids[number]


def main(fd: int) -> None:
    """Serve the control socket whose file descriptor is ``fd``."""
    with socket.socket(fileno=fd) as control:
        _Zygote(control).run()
