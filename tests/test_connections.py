import asyncio
import gc

import aiohttp
import pytest

from palestra.connections import Connections


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
