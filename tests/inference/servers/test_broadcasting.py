"""Weights that reach servers over process groups: what arrives is the learner's, to the bit, also after a server has died.

The servers are processes without a model, over gloo. vLLM and SGLang receive over NCCL, which needs GPUs.
"""

import asyncio
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from aiohttp import web
from safetensors.torch import load_file
from tests.inference.servers.servers import serving
from tests.training.tiny import learner_of

from palestra.errors import PolicyError
from palestra.foundation.resources.connections import free_port
from palestra.inference.servers.broadcasting import CollectiveTransfer, bucketed
from palestra.inference.servers.publishing import PolicyWeights
from palestra.inference.servers.remote import RemoteEngine
from palestra.inference.servers.served import ServedEngine
from palestra.inference.servers.sglang import SGLangEngine
from palestra.inference.servers.vllm import VLLMEngine
from palestra.training.learner.learner import Learner

pytestmark = pytest.mark.torch

BUCKET = 4000
SERVER = Path(__file__).with_name("receiving_server.py")


class Process:
    """A server in a process of its own, which can be started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port("127.0.0.1")
        self.url = f"http://127.0.0.1:{self.port}"
        self.file = folder / f"{self.port}.safetensors"
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-W", "ignore", str(SERVER), str(self.port), str(self.file)]
        return subprocess.Popen(command, env={**os.environ, "OMP_NUM_THREADS": "1"})

    async def until_up(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self.ask, "/health")
                return
            except OSError:
                assert self.process.poll() is None
                await asyncio.sleep(0.1)

    def ask(self, path: str) -> None:
        urllib.request.urlopen(self.url + path, timeout=30).close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Process]]:
    started: list[Process] = []

    def one() -> Process:
        started.append(Process(tmp_path))
        return started[-1]

    yield one
    for server in started:
        server.process.kill()
        server.process.wait()


def expected(learner: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in learner.checkpoint_weights("bfloat16")}


def same(file: Path, weights: dict[str, torch.Tensor]) -> bool:
    found = load_file(file)
    return found.keys() == weights.keys() and all(
        found[name].dtype == torch.bfloat16 and torch.equal(found[name], tensor) for name, tensor in weights.items()
    )


def change(learner: Learner) -> None:
    with torch.no_grad():
        for parameter in learner.parameters:
            parameter.add_(0.01)


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", [VLLMEngine, SGLangEngine])
async def test_all_servers_get_the_weights_and_one_that_dies_gets_them_again(
    start: Callable[[], Process], kind: type[RemoteEngine]
) -> None:
    servers, notes = [start(), start()], list[str]()
    for server in servers:
        await server.until_up()
    learner = learner_of()
    assert learner.network.language_model.config.tie_word_embeddings
    remote = kind([server.url for server in servers], timeout=120.0)
    engine = ServedEngine(remote, CollectiveTransfer("cpu", bucket=BUCKET, say=notes.append))

    await engine.update_weights(PolicyWeights(learner), 1)
    first = expected(learner)
    assert "lm_head.weight" not in first  # tied: sent once
    assert all(same(server.file, first) for server in servers)

    change(learner)
    await asyncio.to_thread(servers[1].ask, "/die")
    await engine.update_weights(PolicyWeights(learner), 2)
    second = expected(learner)
    assert same(servers[0].file, second)
    assert servers[1].process.wait(60) == 1
    assert same(servers[1].file, first)
    assert [replica.healthy for replica in remote.replicas] == [True, False]
    assert notes[0].startswith(f"{servers[1].url} did not get version 2 of the weights (")

    change(learner)  # what the learner computes now is not what the restarted server gets
    servers[1].process = servers[1].start()
    while not remote.replicas[1].healthy:
        await asyncio.sleep(0.01)
    assert same(servers[1].file, second)
    assert remote.replicas[1].version == 2

    await engine.update_weights(PolicyWeights(learner), 3)
    assert all(same(server.file, expected(learner)) for server in servers)
    await engine.close()


def test_buckets_end_with_the_tensor_that_fills_them() -> None:
    weights = [(str(n), torch.full((n,), float(n), dtype=torch.bfloat16)) for n in (10, 40, 5, 60, 1)]
    buckets = list(bucketed(weights, 99))
    assert [bucket.names for bucket in buckets] == [("10", "40"), ("5", "60"), ("1",)]
    assert [len(bucket.data) for bucket in buckets] == [100, 130, 2]
    assert buckets[0].shapes == ((10,), (40,))
    assert torch.equal(buckets[1].data.view(torch.bfloat16)[5:], weights[3][1])


@pytest.mark.parametrize(("status", "detail"), [(404, "Not Found"), (500, "Weight transfer not configured")])
async def test_a_server_without_a_transfer_is_named_with_what_it_lacks(status: int, detail: str) -> None:
    async def absent(request: web.Request) -> web.Response:
        known: dict[str, Any] = {"/v1/models": {"data": [{"id": "m", "max_model_len": 64}]}}
        if request.path in known:
            return web.json_response(known[request.path])
        return web.json_response({"detail": detail}, status=status if "world" in request.path else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", absent)
    async with serving(app) as url:
        engine = ServedEngine(VLLMEngine(url), CollectiveTransfer("cpu"))
        with pytest.raises(PolicyError, match=r"does not receive weights .*--weight-transfer-config .*VLLM_SERVER_DEV_MODE=1"):
            await engine.update_weights(PolicyWeights(learner_of()), 1)
        await engine.close()
