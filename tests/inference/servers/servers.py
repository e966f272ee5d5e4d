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
        self.adapters: dict[str, str] = {}
        self.paused = False
        self.awake = {"weights", "kv_cache"}
        """What the server has memory for."""
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

    async def write(self, prompt: list[int], limit: int, stops: list[int], adapter: str = "") -> tuple[list[int], str]:
        """Sample token by token; an abort returns what there is."""
        self.calls += 1
        if len(self.awake) < 2:
            raise web.HTTPBadRequest(text="the server sleeps")
        if len(prompt) + limit > LENGTH:
            raise web.HTTPBadRequest(text="longer than the context of the model")
        await self.resumed.wait()
        ids: list[int] = []
        while len(ids) < min(limit, self.own_limit):
            if self.aborts.is_set():
                return ids, "abort"
            ids.append(next_token(prompt + ids, self.adapters[adapter] if adapter else self.weights))
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
        adapter = "" if body["model"] == "stub" else body["model"]
        if adapter and adapter not in self.adapters:
            raise web.HTTPNotFound(text=f"the model {adapter} does not exist")
        ids, finish = await self.write(body["prompt"], body["max_tokens"], body["stop_token_ids"], adapter)
        chance = 0.0 if body["top_k"] == 1 and self.processed else -0.5
        logprobs = [chance] * (len(ids) - (self.tamper == "logprobs"))
        choice = {
            "token_ids": ids,
            "prompt_token_ids": body["prompt"][:-1] if self.tamper == "prompt" else body["prompt"],
            "finish_reason": finish,
            "logprobs": {"token_logprobs": logprobs},
        }
        if "prompt_logprobs" in body:
            choice["prompt_logprobs"] = [None, *({str(id): {"logprob": -0.01 * id}} for id in body["prompt"][1:])]
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

    async def sleep(self, request: web.Request) -> web.Response:
        self.log.append(f"sleep {request.query['level']}")
        self.awake.clear()
        return web.Response()

    async def is_sleeping(self, request: web.Request) -> web.Response:
        return web.json_response({"is_sleeping": len(self.awake) < 2})

    async def wake_up(self, request: web.Request) -> web.Response:
        self.log.append(f"wake {request.query['tags']}")
        self.awake.add(request.query["tags"])
        return web.Response()

    async def rpc(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self.fault(request)
        if "weights" not in self.awake:
            raise web.HTTPInternalServerError(text="there is no memory for weights")
        self.weights = body["kwargs"]["weights_path"]
        self.log.append(f"load {self.weights}")
        return web.json_response({})

    async def load_adapter(self, request: web.Request) -> web.Response:
        body = await request.json()
        await self.fault(request)
        if body["lora_name"] in self.adapters:
            raise web.HTTPBadRequest(text=f"The lora adapter '{body['lora_name']}' has already been loaded.")
        self.adapters[body["lora_name"]] = body["lora_path"]
        self.log.append(f"load {body['lora_path']}")
        return web.Response(text=f"Success: LoRA adapter '{body['lora_name']}' added successfully.")

    async def unload_adapter(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        if self.adapters.pop(name, None) is None:
            raise web.HTTPNotFound(text=f"The lora adapter '{name}' cannot be found.")
        self.log.append(f"unload {name}")
        return web.Response(text=f"Success: LoRA adapter '{name}' removed successfully.")

    # SGLang

    async def sglang_adapter(self, request: web.Request) -> web.Response:
        await (self.unload_adapter if "unload" in request.path else self.load_adapter)(request)
        return web.json_response({"success": True})

    async def generate(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.bodies.append(body)
        await self.fault(request)
        parameters = body["sampling_params"]
        stops = [*parameters["stop_token_ids"], self.own_stop]
        ids, finish = await self.write(body["input_ids"], parameters["max_new_tokens"], stops, body.get("lora_path", ""))
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
        read = {"/v1/models": self.models, "/health": self.health, "/is_sleeping": self.is_sleeping}
        called = {
            "/v1/completions": self.completions,
            "/pause": self.pause,
            "/resume": self.resume,
            "/collective_rpc": self.rpc,
        }
        called |= {"/sleep": self.sleep, "/wake_up": self.wake_up, "/v1/load_lora_adapter": self.load_adapter}
        called |= {"/v1/unload_lora_adapter": self.unload_adapter, "/load_lora_adapter": self.sglang_adapter}
        called |= {"/unload_lora_adapter": self.sglang_adapter, "/generate": self.generate, "/pause_generation": self.pause}
        called |= {"/continue_generation": self.resume, "/update_weights_from_disk": self.update}
        app.add_routes([web.get(path, answer) for path, answer in read.items()])
        app.add_routes([web.post(path, answer) for path, answer in called.items()])
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
