"""Servers with the HTTP interfaces of vLLM and SGLang, without a model. Prompt and weights determine what they write."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

LENGTH = 4096


def next_token(context: list[int], weights: str) -> int:
    return (sum(context) * 31 + len(context) * 7 + len(weights) * 13) % 90 + 3


class Server:
    """One server. ``faults`` holds what to do to the coming calls instead of answering them."""

    def __init__(self) -> None:
        self.weights = "base"
        self.paused = False
        self.aborts = asyncio.Event()
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.faults: deque[str] = deque()
        self.calls = 0
        self.written = 0
        self.log: list[str] = []
        self.pace = 0.0
        self.processed = True
        self.tamper = ""
        self.bodies: list[dict[str, Any]] = []
        self.own_limit = LENGTH
        self.own_stop = -1

    async def write(self, prompt: list[int], limit: int, stops: list[int]) -> tuple[list[int], str]:
        """Sample token by token; an abort returns what there is."""
        self.calls += 1
        if len(prompt) + limit > LENGTH:
            raise web.HTTPBadRequest(text="longer than the context of the model")
        await self.resumed.wait()
        ids: list[int] = []
        while len(ids) < min(limit, self.own_limit):
            if self.aborts.is_set():
                return ids, "abort"
            ids.append(next_token(prompt + ids, self.weights))
            self.written += 1
            if ids[-1] in stops:
                return ids, "stop"
            await asyncio.sleep(self.pace)
        return ids, "length"

    async def fault(self, request: web.Request) -> None:
        if not self.faults:
            return
        kind = self.faults.popleft()
        if kind == "cut":
            assert request.transport is not None
            request.transport.close()
            raise web.HTTPInternalServerError
        raise {"500": web.HTTPInternalServerError, "429": web.HTTPTooManyRequests, "400": web.HTTPBadRequest}[kind]

    # vLLM

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "stub", "max_model_len": LENGTH}]})

    async def completions(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        await self.fault(request)
        ids, finish = await self.write(body["prompt"], body["max_tokens"], body["stop_token_ids"])
        chance = 0.0 if body["top_k"] == 1 and self.processed else -0.5
        logprobs = [chance] * (len(ids) - (self.tamper == "logprobs"))
        choice = {
            "token_ids": ids,
            "prompt_token_ids": body["prompt"][:-1] if self.tamper == "prompt" else body["prompt"],
            "finish_reason": finish,
            "logprobs": {"token_logprobs": logprobs},
        }
        if self.tamper == "text":
            choice = {"text": "hello", "finish_reason": "stop"}
        return web.json_response({"choices": [choice]})

    async def pause(self, request: web.Request) -> web.Response:
        self.log.append("pause")
        self.resumed.clear()
        self.aborts.set()
        return web.json_response({})

    async def resume(self, request: web.Request) -> web.Response:
        self.log.append("resume")
        self.aborts.clear()
        self.resumed.set()
        return web.json_response({})

    async def rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self.fault(request)
        self.weights = body["kwargs"]["weights_path"]
        self.log.append(f"load {self.weights}")
        return web.json_response({})

    # SGLang

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        await self.fault(request)
        parameters = body["sampling_params"]
        stops = [*parameters["stop_token_ids"], self.own_stop]
        ids, finish = await self.write(body["input_ids"], parameters["max_new_tokens"], stops)
        counted = len(body["input_ids"]) - (self.tamper == "prompt")
        meta = {
            "prompt_tokens": counted,
            "finish_reason": {"type": finish, **({"matched": ids[-1]} if finish == "stop" else {})},
            "output_token_logprobs": [[-0.5, token, None] for token in ids],
        }
        return web.json_response({"text": "", "meta_info": meta})

    async def update(self, request: web.Request) -> web.Response:
        body = await request.json()
        if body["model_path"] == "nowhere":
            return web.json_response({"success": False, "message": "no such folder"})
        self.weights = body["model_path"]
        self.log.append(f"load {self.weights}")
        return web.json_response({"success": True})

    async def health(self, request: web.Request) -> web.Response:
        return web.Response()

    def app(self) -> web.Application:
        app = web.Application()
        app.add_routes(
            [
                web.get("/v1/models", self.models),
                web.get("/health", self.health),
                web.post("/v1/completions", self.completions),
                web.post("/pause", self.pause),
                web.post("/resume", self.resume),
                web.post("/collective_rpc", self.rpc),
                web.post("/generate", self.generate),
                web.post("/pause_generation", self.pause),
                web.post("/continue_generation", self.resume),
                web.post("/update_weights_from_disk", self.update),
            ]
        )
        return app


@asynccontextmanager
async def serving(app: web.Application, port: int = 0) -> AsyncIterator[str]:
    """``app`` on a port of the loopback; its URL."""
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    server: Any = site._server
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()
