import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.wrappers.test_use_tools import Recorder

from palestra.errors import InfrastructureError, SchemaError, UsageError
from palestra.tools.mcp import McpServer
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call
from palestra.wrappers import ToolRules, UseTools

pytestmark = pytest.mark.skipif(find_spec("mcp") is None, reason="the mcp package is not installed")

PLAIN = [sys.executable, "-I", "-S", str(Path(__file__).with_name("plain_mcp_server.py"))]
WITH_SDK = [sys.executable, str(Path(__file__).with_name("mcp_server.py"))]
CANARY = "CANARY-0123456789"


def calls(*named: tuple[str, dict[str, object]]) -> str:
    return "".join(format_call(ToolCall(name, arguments)) for name, arguments in named)


async def test_a_server_on_standard_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", CANARY)
    async with McpServer(command=PLAIN, environment={"TOKEN": CANARY}) as server:
        tools = await server.tools()
        assert {tool.name for tool in tools} == {"add", "count", "hang", "crash", "refuse", "environment"}
        env = UseTools(Recorder(), tools, ToolRules(seconds=20.0))
        await env.reset(seed=0)
        step = await env.step(calls(("add", {"a": 2, "b": 3}), ("count", {}), ("count", {})))
        assert step.info["tools"]["totals"] == {"ok": 3}
        assert ">\n5\n<" in str(step.observation)
        step = await env.step(calls(("refuse", {}), ("environment", {}), ("add", {"a": 2})))
        assert step.info["tools"]["totals"] == {"ok": 4, "failed": 1, "arguments": 1}
        assert "OURS" not in str(step.observation)
        assert CANARY not in str(step)
        step = await env.step(calls(("crash", {})))
        assert step.info["tools"]["totals"]["crashed"] == 1
        step = await env.step(calls(("count", {})))  # a new session, and a new count
        assert ">\n1\n<" in str(step.observation)
        await env.close()
        assert not server._open


@pytest.mark.gate
@pytest.mark.slow
async def test_deadlines_isolation_and_limits() -> None:
    async with McpServer(command=PLAIN, allow=["count", "hang"], sessions=2) as server:
        tools = await server.tools()
        one, two = (UseTools(Recorder(), tools, ToolRules(seconds=2.0)) for _ in range(2))
        for env in (one, two):
            await env.reset(seed=0)
            env.rules = ToolRules(seconds=60.0)
        first, second = await asyncio.gather(one.step(calls(("count", {}))), two.step(calls(("count", {}))))
        assert ">\n1\n<" in str(first.observation)
        assert ">\n1\n<" in str(second.observation)
        one.rules = ToolRules(seconds=0.5)
        step = await one.step(calls(("hang", {})))
        assert step.info["tools"]["totals"]["timeout"] == 1
        await one.close()
        await two.close()


async def test_pins_and_allow_lists() -> None:
    async with McpServer(command=PLAIN, allow=["add", "hang"]) as server:
        pins = await server.pins_of()
        assert set(pins) == {"add", "hang"}
    async with McpServer(command=PLAIN, allow=["add", "hang"], environment={"CHANGED": "1"}, pins=pins) as changed:
        with pytest.raises(SchemaError, match=r"'hang'.*has been changed"):
            await changed.tools()
    async with McpServer(command=PLAIN, allow=["nothing"]) as other:
        with pytest.raises(UsageError, match="no tool nothing"):
            await other.tools()


async def test_a_server_that_is_not_there() -> None:
    async with McpServer(command=["no-such-program-anywhere"], environment={"TOKEN": CANARY}) as server:
        with pytest.raises(InfrastructureError) as caught:
            await server.tools()
        assert CANARY not in f"{caught.value!r}{caught.value.__context__!r}"
    for wrong in ({}, {"command": ["x"], "url": "http://x"}):
        with pytest.raises(UsageError):
            McpServer(**wrong)  # type: ignore[arg-type]


@pytest.fixture
def http_server() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    environment = {"PATH": os.environ["PATH"]}
    process = subprocess.Popen([*WITH_SDK, str(port)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield f"http://127.0.0.1:{port}/mcp"
    process.kill()
    process.wait()


async def _until_open(url: str) -> None:
    port = int(url.rsplit(":", 1)[1].partition("/")[0])
    async with asyncio.timeout(60.0):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.1)
            else:
                writer.close()
                return


@pytest.mark.slow
async def test_a_server_over_http_with_shared_sessions(http_server: str) -> None:
    await _until_open(http_server)
    async with McpServer(url=http_server, headers={"Authorization": f"Bearer {CANARY}"}, shared=True) as server:
        tools = {tool.name: tool for tool in await server.tools()}
        assert CANARY in server.secrets
        answers = await asyncio.gather(*(tools["add"](a=n, b=1) for n in range(5)))
        assert [answer.text for answer in answers] == ["1", "2", "3", "4", "5"]
        assert len(server._open) <= 6


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("mcp-server-everything") is None, reason="npm install -g @modelcontextprotocol/server-everything"
)
async def test_a_server_from_npm() -> None:
    async with McpServer(command=["mcp-server-everything", "stdio"], allow=["echo", "get-sum", "get-tiny-image"]) as server:
        tools = {tool.name: tool for tool in await server.tools()}
        assert (await tools["echo"](message="hi")).text == "Echo: hi"
        assert "5" in (await tools["get-sum"](a=2, b=3)).text
        assert "[image]" in (await tools["get-tiny-image"]()).text


@pytest.mark.gate
@pytest.mark.slow
async def test_a_server_without_a_free_session_is_infrastructure() -> None:
    async with McpServer(command=PLAIN, allow=["count"], sessions=1) as server:
        tools = await server.tools()
        one, two = (UseTools(Recorder(), tools, ToolRules(seconds=60.0)) for _ in range(2))
        await one.reset(seed=0)
        await two.reset(seed=0)
        assert (await one.step(calls(("count", {})))).info["tools"]["totals"] == {"ok": 1}
        two.rules = ToolRules(seconds=0.5)
        with pytest.raises(InfrastructureError, match="did not begin"):
            await two.step(calls(("count", {}), ("count", {})))
        await one.close()
        two.rules = ToolRules(seconds=60.0)
        assert (await two.step(calls(("count", {})))).info["tools"]["totals"] == {"ok": 1}
        (tool,) = two._tools.values()
        assert tool.waiting_since is None  # type: ignore[attr-defined]
        await two.close()
