"""A proxy in front of an OpenAI-compatible server that does to calls what networks and busy servers do."""

import asyncio
import random
from collections import Counter
from typing import Any

import aiohttp
from aiohttp import web

__all__ = ["FaultProxy"]

CHANCES = {"500": 0.05, "cut before": 0.03, "cut after": 0.03, "stall": 0.003}
BURST = 40
"""Every so many calls a burst begins, in which a quarter of that many are refused with 429."""
STALL = 30.0


class FaultProxy:
    """Passes most calls on. ``kinds`` counts what was done to the others."""

    def __init__(self, server: str, seed: int = 0) -> None:
        self.server = server.rstrip("/")
        self.model = ""
        self.url = ""
        self.kinds: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._calls = 0
        self._http: Any = None
        self._runner: Any = None

    async def __aenter__(self) -> "FaultProxy":
        self._http = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with self._http.get(f"{self.server}/v1/models") as answer:
            self.model = (await answer.json())["data"][0]["id"]
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self._handle)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        listening: Any = site._server
        self.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()
        await self._http.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        kind = self._draw()
        self.kinds[kind] += 1
        if kind == "429":
            return web.Response(status=429, headers={"Retry-After": "0.2"}, text="too many requests")
        if kind == "500":
            return web.Response(status=500, text="internal error")
        if kind == "stall":
            await asyncio.sleep(STALL)
        if kind != "cut before":
            async with self._http.post(f"{self.server}/v1/chat/completions", data=body, headers=request.headers) as answer:
                data, status = await answer.read(), answer.status
        if kind.startswith("cut"):
            assert request.transport is not None
            request.transport.close()
            raise web.HTTPInternalServerError
        return web.Response(status=status, body=data, content_type="application/json")

    def _draw(self) -> str:
        self._calls += 1
        if self._calls % BURST < BURST // 4:
            return "429"
        point = self._random.random()
        for kind, chance in CHANCES.items():
            if point < chance:
                return kind
            point -= chance
        return "passed"
