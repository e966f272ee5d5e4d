"""What is recorded of requests to a site of the user's own: a small server on this machine."""

import asyncio
import json

from aiohttp import web
from tests.answering import answering

from palestra.worlds.web.arena.recording import Recording

BROWSER = [("Accept-Encoding", "gzip, deflate"), ("Content-Type", "application/json"), ("Host", "elsewhere.test")]
TOTALS = {"items": [{"name": "Easel"}]}


async def compressed(request: web.Request) -> web.Response:
    """Answer with JSON, compressed if the request allows it."""
    response = web.json_response(TOTALS, status=201)
    response.enable_compression()
    return response


async def test_a_request_is_recorded_with_an_answer_that_can_be_read() -> None:
    async with answering(compressed) as address:
        sites = Recording({address.removeprefix("http://")})
        status, _, body = await sites.visit("POST", f"{address}/rest/totals?cart=3", BROWSER, b'{"a": 1}')
    assert (status, json.loads(body)) == (201, TOTALS)
    (made,) = sites.entries
    asked, answer = made["request"], made["response"]
    assert (asked["method"], asked["url"]) == ("POST", f"{address}/rest/totals?cart=3")
    assert asked["postData"] == {"mimeType": "application/json", "text": '{"a": 1}'}
    assert (answer["status"], json.loads(answer["content"]["text"])) == (201, TOTALS)
    assert answer["content"]["mimeType"].startswith("application/json")


async def test_entries_are_in_the_order_of_the_requests() -> None:
    arrived, released = asyncio.Event(), asyncio.Event()

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/slow":
            arrived.set()
            await released.wait()
        return web.Response()

    async with answering(answer) as address:
        sites = Recording({address.removeprefix("http://")})
        slow = asyncio.create_task(sites.visit("POST", f"{address}/slow", [], b""))
        await arrived.wait()
        await sites.visit("POST", f"{address}/fast", [], b"")
        assert [one["request"]["url"] for one in sites.entries] == [f"{address}/fast"]
        released.set()
        await slow
    assert [one["request"]["url"] for one in sites.entries] == [f"{address}/slow", f"{address}/fast"]
