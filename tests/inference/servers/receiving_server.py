"""A server without a model that receives weights over gloo, with the HTTP calls of vLLM and SGLang: ``PORT FILE``.

It joins the group as SGLang's workers do, divides the stream into buckets as vLLM's workers do, and writes what it has
received into FILE. ``/die`` makes it end in the middle of the next weights.
"""

import asyncio
import math
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from aiohttp import web
from safetensors.torch import save_file
from torch.distributed import distributed_c10d


class Receiver:
    """One server with one worker."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.group: Any = None
        self.bucket = 0
        self.left = -1
        self.updating = False
        self.received: dict[str, torch.Tensor] = {}

    def join(self, address: str, port: int, size: int, name: str) -> None:
        store, rank, size = next(dist.rendezvous(f"tcp://{address}:{port}", 1, size, timeout=timedelta(seconds=60)))
        store = dist.PrefixStore(name, store)
        distributed_c10d._world.pg_names.clear()  # the group of a learner that has gone
        new: Any = distributed_c10d._new_process_group_helper
        self.group = new(size, rank, [], dist.Backend("gloo"), store, group_name=name, timeout=timedelta(seconds=60))[0]

    def take(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        if self.left == 0:
            os._exit(1)
        self.left -= 1
        data = torch.empty(count, dtype=dtype)
        options = dist.BroadcastOptions()
        options.rootRank = 0
        self.group.broadcast([data], options).wait()
        return data

    def receive_packed(self, info: dict[str, Any]) -> None:
        """All tensors, in buckets that end with the tensor by which they become too large."""
        held: list[tuple[str, torch.dtype, list[int], int]] = []
        for place, (name, dtype, shape) in enumerate(zip(*info.values(), strict=True), 1):
            kind = getattr(torch, dtype)
            held.append((name, kind, shape, math.prod(shape) * kind.itemsize))
            if sum(size for *_, size in held) <= self.bucket and place < len(info["names"]):
                continue
            data = self.take(sum(size for *_, size in held), torch.uint8)
            for (full, its_kind, its_shape, _), part in zip(held, data.split([size for *_, size in held]), strict=True):
                assert full not in self.received
                self.received[full] = part.clone().view(its_kind).view(its_shape)
            held = []

    def receive_one_by_one(self, body: dict[str, Any]) -> None:
        for name, dtype, shape in zip(body["names"], body["dtypes"], body["shapes"], strict=True):
            assert name not in self.received
            self.received[name] = self.take(math.prod(shape), getattr(torch, dtype)).view(shape)

    def finish(self) -> None:
        save_file(self.received, f"{self.file}.part")
        os.replace(f"{self.file}.part", self.file)
        self.received = {}

    async def vllm(self, request: web.Request) -> web.Response:
        path, body = request.path, await request.json() if request.can_read_body else {}
        if path == "/init_weight_transfer_engine":
            info = body["init_info"]
            assert info["packed"]
            assert info["rank_offset"] == 1
            self.bucket = info["packed_buffer_size_bytes"]
            place = info["master_address"], info["master_port"], info["world_size"], "palestra-weights"
            await asyncio.to_thread(self.join, *place)
        elif path == "/start_weight_update":
            assert not self.updating
            self.updating = True
        elif path == "/update_weights":
            assert self.updating
            assert list(body["update_info"]) == ["names", "dtype_names", "shapes"]
            await asyncio.to_thread(self.receive_packed, body["update_info"])
        elif path == "/finish_weight_update":
            self.finish()
            self.updating = False
        return web.json_response({})

    async def sglang(self, request: web.Request) -> web.Response:
        path, body = request.path, await request.json()
        if path == "/init_weights_update_group":
            assert body["backend"] == "gloo"
            place = body["master_address"], body["master_port"], body["world_size"], body["group_name"]
            await asyncio.to_thread(self.join, *place)
        elif path == "/update_weights_from_distributed":
            await asyncio.to_thread(self.receive_one_by_one, body)
            if body["flush_cache"]:
                self.finish()
        return web.json_response({"success": True})

    async def simple(self, request: web.Request) -> web.Response:
        if request.path == "/die":
            self.left = 2
        known = {"/v1/models": {"data": [{"id": "m", "max_model_len": 64}]}, "/get_world_size": {"world_size": 1}}
        return web.json_response(known.get(request.path, {"tp_size": 1}))


def main(port: str, file: str) -> None:
    receiver, app = Receiver(Path(file)), web.Application()
    for path in ("init_weight_transfer_engine", "start_weight_update", "update_weights", "finish_weight_update"):
        app.router.add_post(f"/{path}", receiver.vllm)
    for path in ("init_weights_update_group", "update_weights_from_distributed"):
        app.router.add_post(f"/{path}", receiver.sglang)
    app.router.add_route("*", "/{path:.*}", receiver.simple)
    web.run_app(app, host="127.0.0.1", port=int(port), print=None)


if __name__ == "__main__":
    main(*sys.argv[1:])
