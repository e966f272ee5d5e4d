"""The child side, in this process, where it can be watched."""

import errno
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import palestra
from palestra import Env, Step, Task
from palestra.adapters.workers.zygote import (
    Boot,
    CallRequest,
    ResetRequest,
    StepRequest,
    WorkerReply,
    _failure,
    serve_worker,
)
from palestra.errors import Boundary
from palestra.foundation.encoding import decode_msgpack, encode_msgpack
from palestra.foundation.processes.frames import receive_sized, sized

SLOW = Boot("tests.rollouts.faulty:Slow", {}, None)


class Asker:
    """Speaks the worker's protocol, without the event loop."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._incoming = connection.makefile("rb")

    def __call__(self, request: Any) -> WorkerReply:
        self.connection.sendall(sized(encode_msgpack(request)))
        reply = receive_sized(self._incoming)
        assert reply is not None
        return decode_msgpack(reply, WorkerReply)

    def hang_up(self) -> None:
        self._incoming.close()
        self.connection.close()


@contextmanager
def worker() -> Iterator[Asker]:
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve_worker, args=[theirs])
    thread.start()
    ask = Asker(ours)
    try:
        yield ask
    finally:
        ask.hang_up()
        thread.join(5)
        assert not thread.is_alive(), "a worker ends when the other end hangs up"


def test_a_worker_answers_until_the_other_end_hangs_up() -> None:
    with worker() as ask:
        assert ask(SLOW) == WorkerReply()
        assert ask(ResetRequest(Task("t", 4))).result == ["task 4", {"pid": os.getpid()}]
        assert ask(StepRequest("hi")).result == ["heard 'hi'", 1.0, False, False, {}]
        assert ask(CallRequest("seed_actions", (3,))) == WorkerReply()
        assert ask(StepRequest("live")).result[4]["kept"] == 1


@pytest.mark.parametrize("action", ["exit", "interrupt", "wrong"])
def test_what_an_environment_raises_is_told_and_the_worker_goes_on(action: str) -> None:
    with worker() as ask:
        ask(SLOW)
        ask(ResetRequest(Task("t", 4)))
        told = ask(StepRequest(action))
        assert told.boundary is Boundary.ENV
        assert told.kind in ("SystemExit", "KeyboardInterrupt", "TypeError")
        assert told.kind in told.detail
        assert not told.usage
        assert ask(CallRequest("fork")).usage
        assert ask(StepRequest("0")).result[0] == "heard '0'"


def test_an_environment_that_cannot_be_built_is_told_and_another_may_be() -> None:
    with worker() as ask:
        assert ask(Boot("tests.rollouts.faulty:Unbuildable", {}, None)).error == "cannot be built"
        assert ask(Boot("tests.rollouts.faulty:Nobody", {}, None)).usage
        assert ask(Boot("tests.rollouts.faulty:Slow", {}, "/no/such/script.py")).kind == "FileNotFoundError"
        assert ask(SLOW) == WorkerReply()


@pytest.mark.parametrize(
    ("error", "boundary"), [(OSError(errno.EMFILE, "full"), Boundary.INFRASTRUCTURE), (KeyError("x"), Boundary.ENV)]
)
def test_a_machine_that_is_used_up_is_not_blamed_on_the_environment(error: Exception, boundary: Boundary) -> None:
    assert _failure(error).boundary is boundary


class Declares(Env):
    """Declares what only an object of it, after a reset, can say."""

    blocking = True
    reward_range = (0.0, 2.0)
    score_range = (0.0, 3.0)
    ceiling = 0.75

    @property
    def floor(self) -> float:
        return self.task.seed / 10

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "go", {}

    def step(self, action: str) -> Step:
        return Step("", 1.0, True, False, {})


async def test_a_worker_environment_declares_what_the_environment_inside_declares() -> None:
    env = palestra.make_async(f"{__name__}:Declares")
    assert (env.floor, env.ceiling) == (0.0, 0.75), "no object has been made"
    try:
        await env.reset(seed=4)
        assert (env.floor, env.ceiling, env.reward_range, env.score_range) == (0.4, 0.75, (0.0, 2.0), (0.0, 3.0))
    finally:
        await env.close()
