"""Who hears of Ctrl-C, and who may cancel what: the two things that keep the code of strangers from ending a rollout."""

import asyncio
import contextvars
import signal
import threading
from collections.abc import Coroutine, Iterator
from time import monotonic
from typing import Any

import pytest

from palestra.adapters.interrupts import interrupts
from palestra.adapters.ownership import OWNER, Owner, guarded_loop, is_foreign


@pytest.fixture(autouse=True)
def usual_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(work: Coroutine[Any, Any, None]) -> None:
    loop = guarded_loop()  # not asyncio.run, which takes the signal itself
    try:
        loop.run_until_complete(work)
    finally:
        loop.close()


def test_every_listener_hears_an_interrupt_and_the_usual_handler_comes_back() -> None:
    heard: list[tuple[str, KeyboardInterrupt]] = []
    began = monotonic()

    async def listen() -> None:
        with interrupts.heard(lambda error: heard.append(("outer", error))):
            with interrupts.heard(lambda error: heard.append(("inner", error))), pytest.raises(KeyboardInterrupt) as raised:
                signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            assert heard == [("outer", raised.value), ("inner", raised.value)]
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            assert [name for name, _ in heard] == ["outer", "inner", "outer"]
            signal.signal(signal.SIGINT, ignoring)
        assert signal.getsignal(signal.SIGINT) is ignoring, "a handler that was put there meanwhile stays"

    def ignoring(*_: object) -> None: ...

    run(listen())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    run(nothing_heard())
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    first = interrupts.first_since(began)
    assert first is not None
    assert began < first < monotonic()
    assert interrupts.first_since(first) is not None, "the second signal"
    assert interrupts.first_since(monotonic()) is None


async def nothing_heard() -> None:
    with interrupts.heard(lambda error: None):
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler


def test_a_handler_that_raises_nothing_is_no_interrupt_unless_it_is_forced() -> None:
    seen: list[bool] = []
    heard: list[KeyboardInterrupt] = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(interrupts.delivering))

    async def listen() -> None:
        with interrupts.heard(heard.append):
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            assert heard == []
            interrupts.forced = True
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            assert len(heard) == 1
            signal.raise_signal(signal.SIGINT)  # forced once

    run(listen())
    assert seen == [True] * 3
    assert not interrupts.delivering


def test_a_loop_in_another_thread_leaves_the_signal_alone() -> None:
    thread = threading.Thread(target=lambda: run(nothing_installed()))
    thread.start()
    thread.join()
    assert thread_saw == [True]


thread_saw: list[bool] = []


async def nothing_installed() -> None:
    with interrupts.heard(lambda error: None):
        thread_saw.append(signal.getsignal(signal.SIGINT) is signal.default_int_handler)


OUTER = Owner(None)
INNER, OTHER = Owner(OUTER), Owner(None)


@pytest.mark.parametrize(
    ("caller", "owner", "foreign"),
    [
        (None, None, False),
        (None, OUTER, False),
        (OUTER, OUTER, False),
        (OUTER, INNER, False),
        (INNER, OUTER, True),
        (OTHER, OUTER, True),
        (OTHER, INNER, True),
        (OUTER, None, True),
    ],
)
def test_an_episode_may_cancel_what_it_owns(
    caller: Owner | None, owner: Owner | None, foreign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked() -> bool:
        OWNER.set(caller)
        return is_foreign(owner)

    assert contextvars.copy_context().run(asked) is foreign
    monkeypatch.setattr(interrupts, "delivering", True)
    assert not contextvars.copy_context().run(asked), "a signal's handler may cancel everything"


def test_the_code_of_an_episode_cannot_cancel_a_task_of_nobody() -> None:
    async def ours() -> None:
        task = asyncio.ensure_future(asyncio.sleep(3600))
        theirs = contextvars.copy_context()
        theirs.run(OWNER.set, OTHER)
        assert not theirs.run(task.cancel)
        started: asyncio.Task[None] = theirs.run(lambda: asyncio.ensure_future(asyncio.sleep(3600)))
        assert theirs.run(started.cancel)
        assert task.cancel()
        await asyncio.wait([task, started])
        assert task.cancelled()
        assert started.cancelled()

    run(ours())
