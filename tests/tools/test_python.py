import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
from tests.wrappers.test_use_tools import Recorder

from palestra.errors import InfrastructureError
from palestra.sandbox import Bubblewrap, Limits, SandboxSession
from palestra.tools.python import PythonTool
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call
from palestra.wrappers import ToolRules, UseTools


@pytest.fixture
async def boxes() -> AsyncIterator[Bubblewrap]:
    async with Bubblewrap(Limits(wall_seconds=3.0), warm=2) as sandbox:
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


@pytest.mark.gate
@pytest.mark.slow
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


def cells(*codes: str) -> str:
    return "".join(format_call(ToolCall("python", {"code": code})) for code in codes)


class NeverAgain(Bubblewrap):
    """Opens one interpreter and no second one: the machine is busy at the moment that the agent chose."""

    opened = 0

    async def open_session(self, files: Mapping[str, bytes] | None = None) -> SandboxSession:
        self.opened += 1
        if self.opened > 1:
            await asyncio.sleep(3600)
        return await super().open_session(files)


@pytest.mark.slow
@pytest.mark.alone
async def test_an_agent_cannot_queue_its_calls_so_that_the_deadline_passes_while_an_interpreter_opens() -> None:
    async with NeverAgain(Limits(wall_seconds=60.0), warm=1) as sandbox:
        env = UseTools(Recorder(), [PythonTool(sandbox)], ToolRules(seconds=5.0))
        await env.reset()
        sleep = "import time; time.sleep(1.15)"
        step = await env.step(cells(sleep, sleep, sleep, *["import os; os._exit(0)"] * 4))
        assert step.info["tools"]["totals"]["timeout"] >= 3
        assert sandbox.opened > 1  # the deadline passed while another interpreter was opened
        await env.close()


async def test_a_machine_on_which_no_interpreter_opens_is_infrastructure() -> None:
    async with NeverAgain(Limits(), warm=1) as sandbox:
        sandbox.opened = 1
        env = UseTools(Recorder(), [PythonTool(sandbox)], ToolRules(seconds=0.5))
        await env.reset()
        with pytest.raises(InfrastructureError, match="overloaded"):
            await env.step(cells("1", "2", "3"))
        await env.close()


@pytest.mark.gate
@pytest.mark.parametrize("stateful", [True, False])
@pytest.mark.slow
async def test_a_call_that_gets_no_place_on_the_machine_is_infrastructure(stateful: bool) -> None:
    async with Bubblewrap(Limits(wall_seconds=60.0), warm=1, concurrency=1) as sandbox:
        tool = PythonTool(sandbox, stateful=stateful)
        env = UseTools(Recorder(), [tool], ToolRules(seconds=60.0))
        await env.reset()
        assert (await env.step(cells("1"))).info["tools"]["totals"] == {"ok": 1}
        env.rules = ToolRules(seconds=0.5)
        async with sandbox._slots:  # another episode's cell takes the only place
            with pytest.raises(InfrastructureError, match="overloaded"):
                await env.step(cells("1", "2"))
        step = await env.step(cells("import time; time.sleep(60)"))  # its own code is the agent's to answer for
        assert step.info["tools"]["totals"]["timeout"] == 1
        await env.close()
