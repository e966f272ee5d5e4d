"""The MCP server on the standard streams: the order of calls, the key, and what it says without an episode."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web

from palestra.agents import mcp_stdio


class _Tools:
    """The tools of an episode. The first call is answered when a ping has come."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self.at_once = self.most_at_once = 0
        self._ping = asyncio.Event()

    async def answer(self, request: web.Request) -> web.Response:
        message = await request.json()
        if message["method"] == "ping":
            self._ping.set()
        if message["method"] == "tools/call":
            self.order.append(message["id"])
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await self._ping.wait()
            self.at_once -= 1
        return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {}})


@contextlib.asynccontextmanager
async def _served(answer: Any) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    finally:
        await runner.cleanup()


async def _run(messages: list[dict[str, Any]], **environment: str) -> tuple[list[Any], str, int | None]:
    """Send ``messages`` to the command and wait for as many answers. Return them, its errors and its exit status."""
    command = (sys.executable, "-I", "-S", mcp_stdio.__file__)
    running = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment)
    assert running.stdin is not None
    assert running.stdout is not None
    async with asyncio.timeout(15):
        running.stdin.write("".join(json.dumps(message) + "\n" for message in messages).encode())
        answers = [json.loads(await running.stdout.readline()) for _ in messages]
        running.stdin.close()
        _, errors = await running.communicate()
    return answers, errors.decode(), running.returncode


def _message(method: str, id: int, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


async def test_calls_are_passed_on_in_order_and_a_ping_does_not_wait_for_them() -> None:
    tools = _Tools()
    calls = [_message("tools/call", number, name="act", arguments={"action": "initialize"}) for number in range(20)]
    async with _served(tools.answer) as url:
        answers, _, status = await _run([*calls, _message("ping", 99)], PALESTRA_MCP_URL=url, PALESTRA_MCP_KEY="k")
    assert (tools.order, tools.most_at_once, status) == (list(range(20)), 1, 0)
    assert sorted(answer["id"] for answer in answers) == [*range(20), 99]


async def test_the_key_of_an_episode_goes_through_no_proxy() -> None:
    at_proxy: list[str | None] = []

    async def proxy(request: web.Request) -> web.Response:
        at_proxy.append(request.headers.get("Authorization"))
        return web.json_response({})

    async with _served(_Tools().answer) as url, _served(proxy) as other:
        variables = {"PALESTRA_MCP_URL": url, "PALESTRA_MCP_KEY": "k", "http_proxy": other.removesuffix("/mcp")}
        answers, _, _ = await _run([_message("ping", 1)], **variables)
    assert at_proxy == []
    assert answers == [{"jsonrpc": "2.0", "id": 1, "result": {}}]


async def test_an_answer_that_breaks_off_is_an_error_and_the_next_call_is_passed_on() -> None:
    asked: list[int] = []

    async def broken(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        asked.append(message["id"])
        if len(asked) == 2:
            return web.json_response({"jsonrpc": "2.0", "id": message["id"], "result": {}})
        answer = web.StreamResponse(headers={"Content-Length": "1000"})
        await answer.prepare(request)
        await answer.write(b"{")
        assert request.transport is not None
        request.transport.close()
        return answer

    calls = [_message("tools/call", number, name="act", arguments={}) for number in (1, 2)]
    async with _served(broken) as url:
        answers, _, _ = await _run(calls, PALESTRA_MCP_URL=url, PALESTRA_MCP_KEY="k")
    assert "cannot be reached" in answers[0]["error"]["message"]
    assert answers[1]["result"] == {}


@pytest.mark.parametrize("variables", [{}, {"PALESTRA_MCP_URL": "http://127.0.0.1:9/mcp"}])
async def test_without_an_episode_the_command_says_which_variables_it_needs(variables: dict[str, str]) -> None:
    _, errors, status = await _run([], **variables)
    assert status == 1
    assert "PALESTRA_MCP_KEY" in errors
    assert "Traceback" not in errors
