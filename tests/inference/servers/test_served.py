"""Servers as the engine of a run: every version reaches them as a model folder, and the run is an ordinary one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import transformers
from aiohttp import web
from tests.inference.servers.servers import Server, next_token, serving

from palestra.core import Sampling
from palestra.durable.ledger import Ledger
from palestra.errors import PolicyError, UsageError
from palestra.foundation.encoding import ints
from palestra.inference.choice import collective_transfer
from palestra.inference.servers.launching import ServerCommand, server_commands
from palestra.inference.servers.publishing import PolicyWeights
from palestra.inference.servers.remote import RemoteEngine
from palestra.inference.servers.replica import LoraAdapter, ServerReplica
from palestra.inference.servers.sglang import SGLangEngine
from palestra.inference.servers.vllm import VLLMEngine
from palestra.inference.setup import EngineSetup
from palestra.recipes.config import TrainConfig
from palestra.recipes.engine import TRANSFER
from palestra.training.assembly import assemble
from palestra.training.parts import engine_setup

pytestmark = pytest.mark.torch


@asynccontextmanager
async def connected(*servers: Server, kind: type[RemoteEngine] = VLLMEngine) -> AsyncIterator[RemoteEngine]:
    """Serve ``servers``, and connect an engine to them."""
    async with AsyncExitStack() as stack:
        engine = await kind([await stack.enter_async_context(serving(server.app())) for server in servers]).connect()
        stack.push_async_callback(engine.close)
        yield engine


async def revived(engine: RemoteEngine) -> None:
    """Wait until every server answers again."""
    while not all(replica.healthy for replica in engine.replicas):
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_run_is_played_by_servers(tmp_path: Path, kind: str, tiny_model: Path) -> None:
    first, second = Server(), Server()
    async with serving(first.app()) as one, serving(second.app()) as two:
        data = {
            "model": {"path": str(tiny_model)},
            "envs": {"game:GuessTheNumber-v0-easy": 1.0},
            "steps": 3,
            "play": {"tasks": 2, "group_size": 2, "max_tokens": 6},
            "engine": {"kind": kind, "urls": [one, two]},
            "learner": {"learning_rate": 1e-2, "loss": {"importance": "none"}},
        }
        trainer = assemble(msgspec.convert(data, TrainConfig), tmp_path / "run")
        await trainer.train()
        await trainer.engine.close()
    folders = sorted(path.name for path in (tmp_path / "run" / "weights").iterdir())
    assert folders == ["version-00000002", "version-00000003"]
    for server in (first, second):
        loads = [entry.rpartition("/")[2] for entry in server.log if entry.startswith("load")]
        assert loads == [f"version-{version:08d}" for version in range(4)]
    # What the servers were given is the learner's model, under the names that transformers knows.
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "weights" / "version-00000003")
    for name, weight in trainer.learner.weights():
        assert torch.equal(reloaded.state_dict()[name], weight), name
    with Ledger(tmp_path / "run" / "ledger") as ledger:
        assert ledger.audit().balanced


def settings(tiny_model: Path, url: str, kind: str, transfer: str) -> TrainConfig:
    data = {
        "model": {"path": str(tiny_model), "lora": {"rank": 4}},
        "envs": {"game:GuessTheNumber-v0-easy": 1.0},
        "steps": 2,
        "play": {"tasks": 2, "group_size": 2, "max_tokens": 6},
        "engine": {"kind": kind, "urls": [url], "transfer": transfer},
        "learner": {"learning_rate": 1e-2, "loss": {"importance": "none"}},
    }
    return msgspec.convert(data, TrainConfig)


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_servers_get_adapters_alone(tmp_path: Path, kind: str, tiny_model: Path) -> None:
    from peft import PeftModel

    server = Server()
    async with serving(server.app()) as url:
        trainer = assemble(settings(tiny_model, url, kind, "lora"), tmp_path / "run")
        for name, parameter in trainer.learner.network.named_parameters():
            if "lora_B" in name:  # zero at first, and what this server writes teaches nothing
                torch.nn.init.normal_(parameter, std=0.1)
        await trainer.train()
        await trainer.engine.close()
    asked = {body["model"] if kind == "vllm" else body["lora_path"] for body in server.bodies}
    versions = [f"version-{version:08d}" for version in range(3)]
    run = min(asked).removesuffix(versions[0])
    assert run.startswith("run-"), "an adapter's name begins with the folder of the run"
    names = [f"{run}{version}" for version in versions]
    steps = [
        [f"load {tiny_model}", f"load {versions[0]}"],
        [f"load {versions[1]}", f"unload {names[0]}"],
        [f"load {versions[2]}", f"unload {names[1]}"],
        [f"unload {names[2]}"],
    ]
    said = [entry.replace(f"{tmp_path}/run/weights/", "") for entry in server.log if "load" in entry]
    assert said == [entry for step in steps for entry in step]
    assert asked == set(names[:2])  # nothing is played after the last step
    folder = tmp_path / "run" / "weights" / versions[-1]
    assert sorted(path.name for path in folder.glob("*.*")) == ["adapter_config.json", "adapter_model.safetensors"]
    # On the model that the servers have, the adapters give the learner's model.
    base = transformers.AutoModelForCausalLM.from_pretrained(tiny_model)
    merged = PeftModel.from_pretrained(base, folder).merge_and_unload().state_dict()
    before = transformers.AutoModelForCausalLM.from_pretrained(tiny_model).state_dict()
    changed = 0
    for name, weight in trainer.learner.weights():
        torch.testing.assert_close(merged[name], weight, atol=1e-6, rtol=1e-5)
        changed += not torch.equal(before[name], weight)
    assert changed > 5


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
@pytest.mark.parametrize(("transfer", "level"), [("folder", 2), ("lora", 1)])
async def test_servers_sleep_while_the_learner_works(tmp_path: Path, tiny_model: Path, transfer: str, level: int) -> None:
    learned, logs = [], []
    for sleeps in (False, True):
        server = Server()
        async with serving(server.app()) as url:
            config = settings(tiny_model, url, "vllm", transfer)
            engine = msgspec.structs.replace(config.engine, sleep=sleeps)
            trainer = assemble(msgspec.structs.replace(config, engine=engine), tmp_path / str(sleeps))
            await trainer.train()
            await trainer.engine.close()
        learned.append(dict(trainer.learner.weights()))
        logs.append([entry.split()[0] if "load" in entry else entry for entry in server.log if "unload" not in entry])
    first = ["pause", *["load"] * (2 if transfer == "lora" else 1), "resume"]  # the model, and for adapters their model before
    step = ["pause", f"sleep {level}", "wake weights", "load", "wake kv_cache", "resume"]
    assert logs[1] == [*first, *step, *step]
    assert not any("sleep" in entry or "wake" in entry for entry in logs[0])
    for name, weight in learned[0].items():
        assert torch.equal(learned[1][name], weight), name


async def test_a_server_that_ends_in_its_sleep_comes_back_awake_and_the_others_wake() -> None:
    first, second = Server(), Server()
    async with connected(first, second) as engine:
        await engine.update_weights("/one", 1)
        await engine.sleep()
        waiting = asyncio.create_task(engine.generate(ints([1, 2, 3]), Sampling(max_tokens=1)))
        first.awake, first.weights, first.log = {"weights", "kv_cache"}, "its own", []  # it was started again
        engine.suspect(engine.replicas[0].url)
        await revived(engine)
        assert not waiting.done()
        await engine.update_weights("/two", 2)
        made = await waiting
    assert made.tokens.ids[0] == next_token([1, 2, 3], "/two")
    assert first.weights == second.weights == "/two"
    assert not any(entry.startswith("wake") for entry in first.log)
    assert second.awake == {"weights", "kv_cache"}


@pytest.mark.parametrize("awake", [set[str](), {"weights"}])
async def test_a_server_that_an_earlier_run_left_asleep_wakes_with_the_first_weights(awake: set[str]) -> None:
    server = Server()
    server.awake = awake
    async with connected(server) as engine:
        await engine.update_weights("/one", 1)
        made = await engine.generate(ints([1, 2, 3]), Sampling(max_tokens=1))
    assert made.tokens.ids[0] == next_token([1, 2, 3], "/one")
    assert server.log == ["pause", "wake weights", "load /one", "wake kv_cache", "resume"]


async def test_a_server_that_fails_at_its_sleep_is_left_alone_until_the_next_weights() -> None:
    async def dozes(request: web.Request) -> web.Response:
        await Server.sleep(first, request)
        raise web.HTTPInternalServerError

    first, second = Server(), Server()
    first.sleep = dozes  # type: ignore[method-assign]
    async with connected(first, second) as engine:
        await engine.update_weights("/one", 1)
        await engine.sleep()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(revived(engine), 0.2)
        assert not first.awake
        await engine.update_weights("/two", 2)
        await revived(engine)
    assert first.weights == second.weights == "/two"
    assert [entry for entry in first.log if "load" in entry] == ["load /one", "load /two"]
    assert first.awake == second.awake == {"weights", "kv_cache"}


@pytest.mark.parametrize("kind", [VLLMEngine, SGLangEngine])
async def test_adapters_change_the_model_of_the_run_whatever_the_server_had_loaded(kind: type[RemoteEngine]) -> None:
    server = Server()
    server.weights = "of an earlier run"
    async with connected(server, kind=kind) as engine:
        await engine.update_weights(LoraAdapter("/one", "a", "/base"), 1)
        assert server.weights == "/base"
        await engine.update_weights(LoraAdapter("/two", "b", "/base"), 2)
        assert [entry for entry in server.log if "load" in entry] == ["load /base", "load /one", "load /two", "unload a"]
        server.weights, server.log = "its own", []
        server.adapters.clear()  # restarted, and no call has failed
        await engine.update_weights(LoraAdapter("/three", "c", "/base"), 3)
        assert (server.weights, server.adapters) == ("/base", {"c": "/three"})
        server.weights = "its own"
        server.adapters.clear()
        engine.suspect(engine.replicas[0].url)
        await engine.generate(ints([1, 2, 3]), Sampling(max_tokens=2))
        assert (server.weights, server.adapters) == ("/base", {"c": "/three"})


async def test_a_server_that_does_not_load_the_model_of_the_run_ends_it_and_says_what_to_do() -> None:
    server = Server()
    async with connected(server, kind=SGLangEngine) as engine:
        with pytest.raises(PolicyError, match=r"did not load nowhere, the model that the adapters change: .*load_base = false"):
            await engine.update_weights(LoraAdapter("/one", "a", "nowhere"), 1)
    assert not server.adapters


@pytest.mark.parametrize(
    ("engine", "loaded"),
    [
        ({"urls": ["http://x"], "transfer": "lora"}, True),
        ({"urls": ["http://x"], "transfer": {"use": "lora", "load_base": False}}, False),
        ({"launch": {}, "transfer": {"use": "lora"}}, False),
        ({"launch": {"command": ["serve", "{model}", "{port}"]}, "transfer": "lora"}, False),
        ({"launch": {"command": ["serve", "mine", "{port}"]}, "transfer": "lora"}, True),
    ],
)
def test_servers_that_the_run_starts_hold_its_model(tmp_path: Path, engine: dict[str, object], loaded: bool) -> None:
    data = {"model": {"path": "m", "lora": {"rank": 4}}, "envs": {"game:x": 1.0}, "steps": 1}
    config = msgspec.convert({**data, "engine": {"kind": "vllm", **engine}}, TrainConfig)
    transfer = TRANSFER.load(config.engine.transfer)(engine_setup(config, str(tmp_path), tmp_path / "run", None))
    assert transfer.base == (str(tmp_path) if loaded else "")


@pytest.mark.parametrize("kind", [VLLMEngine, SGLangEngine])
async def test_a_model_folder_replaces_the_adapter(kind: type[RemoteEngine]) -> None:
    server = Server()
    async with connected(server, kind=kind) as engine:
        await engine.update_weights(LoraAdapter("/an/adapter", "a"), 1)
        await engine.update_weights("/merged", 2)
        made = await engine.generate(ints([1, 2, 3]), Sampling(max_tokens=1))
    assert made.tokens.ids[0] == next_token([1, 2, 3], "/merged")
    assert not server.adapters


@pytest.mark.parametrize("kind", [VLLMEngine, SGLangEngine])
async def test_a_restarted_server_gets_the_adapter_again(kind: type[RemoteEngine]) -> None:
    server = Server()
    async with connected(server, kind=kind) as engine:
        await engine.update_weights(LoraAdapter("/somewhere", "a"), 1)
        await engine.update_weights(LoraAdapter("/somewhere/else", "a"), 2)  # of a run that was repeated
        assert server.adapters == {"a": "/somewhere/else"}
        server.adapters.clear()
        engine.suspect(engine.replicas[0].url)
        made = await engine.generate(ints([1, 2, 3]), Sampling(max_tokens=2))
        assert server.adapters == {"a": "/somewhere/else"}
    assert not server.adapters, "every process uses new names, so no other one would unload it"
    assert made.tokens.ids[0] == next_token([1, 2, 3], "/somewhere/else")


class Noted:
    """A transfer of one's own."""

    def __init__(self, setup: EngineSetup, *, note: str) -> None:
        self.note = note

    def write(self, weights: PolicyWeights, version: int) -> "Noted":
        self.version = version
        return self

    async def load_into(self, engine: RemoteEngine, replica: ServerReplica) -> None:
        await engine._load(replica, f"{self.note} {self.version}")


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
async def test_a_transfer_may_be_a_strangers(tmp_path: Path, tiny_model: Path) -> None:
    server = Server()
    async with serving(server.app()) as url:
        config = settings(tiny_model, url, "vllm", "folder")
        own = msgspec.structs.replace(config.engine, transfer={"use": f"{__name__}:Noted", "note": "by hand"})
        trainer = assemble(msgspec.structs.replace(config, engine=own), tmp_path / "run")
        await trainer.train()
        await trainer.engine.close()
    assert [entry for entry in server.log if "load" in entry] == [f"load by hand {version}" for version in range(3)]


@pytest.mark.parametrize(
    ("lacking", "work", "named"),
    [
        ("sleep", lambda engine: engine.sleep(), r"does not sleep: .*--enable-sleep-mode, .*VLLM_SERVER_DEV_MODE=1"),
        (
            "load_adapter",
            lambda engine: engine.update_weights(LoraAdapter("/one", "a"), 1),
            r"--enable-lora, and with .* VLLM_ALLOW_RUNTIME_LORA_UPDATING=1",
        ),
    ],
)
async def test_a_vllm_server_is_named_with_what_it_lacks(lacking: str, work: Any, named: str) -> None:
    async def absent(request: web.Request) -> web.Response:
        return web.Response(status=404, body=b'{"detail":"Not Found"}', content_type="application/json")

    server = Server()
    setattr(server, lacking, absent)
    async with connected(server) as engine:
        with pytest.raises(PolicyError, match=named):
            await work(engine)


URLS = {"kind": "vllm", "urls": ["http://x"]}


def convert(engine: dict[str, object], **changes: object) -> TrainConfig:
    data = {"model": {"path": "m"}, "envs": {"game:x": 1.0}, "steps": 1, "engine": engine, **changes}
    return msgspec.convert(data, TrainConfig)


@pytest.mark.parametrize(
    ("engine", "changes", "named"),
    [
        ({"sleep": True}, {}, r"engine\.sleep is for vLLM servers"),
        ({"sleep": True, "kind": "sglang", "urls": ["http://x"]}, {}, r"engine\.sleep is for vLLM servers"),
        ({"sleep": True, **URLS}, {"staleness": 1}, r"set staleness = 0"),
        ({"transfer": "lora", **URLS}, {}, r"sends adapters: train some, with the table \[model\.lora\]"),
        ({"transfer": {"use": "lora"}, **URLS}, {}, r"train some"),
        ({"transfer": {"use": "lora"}}, {}, r"engine\.transfer is for servers"),
        (
            {"transfer": "collective", "dtype": "float32", **URLS},
            {},
            r'set engine\.dtype = "bfloat16"',
        ),
        ({"transfer": "collective", "dtype": "bfloat16", "sleep": True, **URLS}, {}, r"but engine\.sleep shares GPUs"),
    ],
)
def test_settings_of_servers_that_cannot_work_are_refused(
    engine: dict[str, object], changes: dict[str, object], named: str
) -> None:
    with pytest.raises(msgspec.ValidationError, match=named):
        convert(engine, **changes)


def commands_of(config: TrainConfig) -> list[ServerCommand]:
    setup = engine_setup(config, "m", Path("run"), None)
    return server_commands(setup.options, setup.model, setup.learner_device, setup.adapter_rank)


def test_servers_that_the_run_starts_get_the_arguments_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    asleep = convert({"sleep": True, "kind": "vllm", "launch": {"replicas": 2}}, model={"path": "m", "device": "cuda:1"})
    asleep.check_devices()
    assert [command.devices for command in commands_of(asleep)] == ["1", "2"]
    assert all("--enable-sleep-mode" in command.arguments for command in commands_of(asleep))
    adapted = convert({"kind": "vllm", "launch": {}, "transfer": {"use": "lora"}}, model={"path": "m", "lora": {"rank": 9}})
    (command,) = commands_of(adapted)
    assert " ".join(command.arguments).endswith("--enable-lora --max-lora-rank 16 --max-loras 2")
    collective = convert({"kind": "vllm", "launch": {}, "transfer": "collective", "dtype": "bfloat16"})
    (command,) = commands_of(collective)
    assert command.arguments[-2:] == ("--weight-transfer-config", '{"backend": "nccl"}')
    with pytest.raises(UsageError, match="sends from a GPU to GPUs"):
        collective_transfer(engine_setup(collective, "m", Path("run"), None))
    assert convert({"kind": "mine:engine", "transfer": "mine:transfer"}).engine.transfer_name == "mine:transfer"
