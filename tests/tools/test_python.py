from collections.abc import AsyncIterator

import pytest

from palestra.sandbox import Bubblewrap, Limits
from palestra.tools.python import PythonTool


@pytest.fixture
async def boxes() -> AsyncIterator[Bubblewrap]:
    async with Bubblewrap(Limits(wall_seconds=1.0), warm=2) as sandbox:
        yield sandbox


async def test_a_stateful_interpreter_remembers_and_a_one_shot_one_does_not(boxes: Bubblewrap) -> None:
    stateful = PythonTool(boxes).for_episode()
    assert (await stateful(code="x = 20")).text == "(no output)"
    assert (await stateful(code="x + 1")).text == "21"
    await stateful.close()
    one_shot = PythonTool(boxes, stateful=False).for_episode()
    await one_shot(code="x = 20")
    result = await one_shot(code="print(x)")
    assert not result.ok
    assert "NameError" in result.text


async def test_what_was_stopped_is_told_and_a_new_interpreter_started(boxes: Bubblewrap) -> None:
    tool = PythonTool(boxes).for_episode()
    await tool(code="x = 1")
    result = await tool(code="print('so far', flush=True)\nwhile True: pass")
    assert not result.ok
    assert result.text == "so far\n[stopped: it did not end in time]"
    result = await tool(code="print(1)")
    assert result.ok
    assert "earlier variables are lost" in result.text
    assert (await tool(code="2")).text == "2"
    result = await tool(code="while True: print('x' * 1000)")
    assert "[stopped: it printed too much]" in result.text
    await tool.close()


async def test_episodes_do_not_see_each_other(boxes: Bubblewrap) -> None:
    lent = PythonTool(boxes)
    one, two = lent.for_episode(), lent.for_episode()
    await one(code="secret = 1; open('f', 'w').write('x')")
    assert (await two(code="import os; print('secret' in globals(), os.listdir('.'))")).text == "False []"
    await one.close()
    await two.close()


async def test_without_a_sandbox_of_its_own_it_shares_one() -> None:
    tool = PythonTool()
    assert (await tool(code="6 * 7")).text == "42"
    assert "without network" in tool.description
