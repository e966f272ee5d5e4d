import asyncio
import gc
from typing import Any

import aiohttp
import pytest

import palestra.foundation.resources.connections
from palestra.foundation.resources.connections import LARGEST_SLICE, QUICK_SECONDS, SLICE, Connections, Slices


async def test_one_session_serves_all_tasks_of_a_loop_and_a_closed_one_is_replaced() -> None:
    connections = Connections(aiohttp.ClientSession)
    first, second = await asyncio.gather(connections.session(), connections.session())
    assert first is second
    assert not first.closed
    await connections.close()
    assert connections.closed
    assert not (await connections.session()).closed
    await connections.close()


def test_a_session_ends_with_its_event_loop(recwarn: pytest.WarningsRecorder) -> None:
    connections = Connections(aiohttp.ClientSession)
    seen = [asyncio.run(connections.session()) for _ in range(2)]
    assert [session.closed for session in seen] == [True, True]
    assert seen[0] is not seen[1]
    asyncio.run(connections.close())
    del seen
    gc.collect()
    assert not recwarn.list


class Wire(asyncio.Transport):
    """A connection whose peer reads nothing."""

    aborted = False

    def abort(self) -> None:
        self.aborted = True

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


async def handed_on(slices: Slices) -> None:
    """Hand 100 kB to ``slices``, and wait until nothing of it waits."""
    slices.receive(b"x" * 100_000)
    async with asyncio.timeout(10):
        while slices.waiting:
            await asyncio.sleep(0)


async def test_a_connection_whose_handler_fails_is_closed_and_the_others_go_on() -> None:
    failures: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failures.append(context["exception"]))
    broken, sound, received = Wire(), Wire(), bytearray()

    def fail(data: bytes) -> None:
        raise RuntimeError("no parser takes this")

    await asyncio.gather(handed_on(Slices(broken, fail, lambda: True)), handed_on(Slices(sound, received.extend, lambda: True)))
    assert [str(error) for error in failures] == ["no parser takes this"]
    assert (broken.aborted, sound.aborted, len(received)) == (True, False, 100_000)


async def test_a_connection_that_its_handler_closes_is_handed_nothing_more() -> None:
    wire, received = Wire(), list[bytes]()

    def refuse(data: bytes) -> None:
        received.append(data)
        wire.abort()

    await handed_on(Slices(wire, refuse, lambda: True))
    assert len(received) == 1


async def test_slices_grow_while_they_take_no_time_and_are_small_again_after_a_slow_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, taken = 0.0, [0.0, 0.0, 0.0, 2 * QUICK_SECONDS, 0.0, 0.0]
    sizes = list[int]()

    def handle(data: bytes) -> None:
        nonlocal now
        sizes.append(len(data))
        now += taken[len(sizes) - 1]

    monkeypatch.setattr(palestra.foundation.resources.connections, "perf_counter", lambda: now)
    expected = [SLICE, 2 * SLICE, LARGEST_SLICE, LARGEST_SLICE, SLICE, 2 * SLICE]
    slices = Slices(Wire(), handle, lambda: True)
    slices.receive(b"x" * sum(expected))
    async with asyncio.timeout(10):
        while slices.waiting:
            await asyncio.sleep(0)
    assert sizes == expected
