"""An OpenAI-compatible server without a model, behind a fault injector."""

import asyncio
import random
from collections import Counter
from typing import Any

from aiohttp import web


class ChatServer:
    """Answers every conversation with how many messages it has; ``faults`` gives the chance of each kind of trouble."""

    def __init__(
        self, faults: dict[str, float] | None = None, *, seed: int = 0, stall: float = 30.0, pace: float = 0.0
    ) -> None:
        self.faults = faults or {}
        self.stall = stall
        self.pace = pace
        self.random = random.Random(seed)
        self.answered = 0
        self.charged = 0
        self.seen: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.kinds: Counter[str] = Counter()
        self.inside = 0
        self.most_inside = 0
        self.reply: dict[str, Any] = {}
        self.finish = "stop"
        self.keep = True

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.keys.add(request.headers.get("Authorization", ""))
        if self.keep:
            self.seen.append(body)
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            return await self._answer(request, body)
        finally:
            self.inside -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        kind = self._draw()
        self.kinds[kind] += 1
        if kind == "429":
            return web.Response(status=429, headers={"Retry-After": "0.05"}, text="slow down")
        if kind in ("500", "400"):
            return web.Response(status=int(kind), text="This model's maximum context length is 9" if kind == "400" else "oops")
        if kind == "stall":
            await asyncio.sleep(self.stall)
        if self.pace:
            await asyncio.sleep(self.pace)
        self.charged += 17
        if kind == "cut":  # the answer was made, and charged for, and never arrives
            assert request.transport is not None
            request.transport.close()
            raise web.HTTPInternalServerError
        self.answered += 1
        message = {"role": "assistant", "content": f"reply {len(body['messages'])}", **self.reply}
        usage = {"prompt_tokens": 10, "completion_tokens": 7}
        return web.json_response({"choices": [{"message": message, "finish_reason": self.finish}], "usage": usage})

    def _draw(self) -> str:
        point = self.random.random()
        for kind, chance in self.faults.items():
            if point < chance:
                return kind
            point -= chance
        return "answer"

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes([web.post("/v1/chat/completions", self.chat)])
        return app
