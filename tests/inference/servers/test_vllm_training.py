"""Runs that start a real vLLM: killed, started again, stopped; and the exported model in it. ``.ci/nightly`` makes the venv.

PALESTRA_VLLM_VENV=… pytest -m vllm -s tests/inference/servers/test_vllm_training.py
"""

import asyncio
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.inference.servers.vllm_process import SCRIPT, vllm_server, vllm_venv
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.durable.ledger import Ledger
from palestra.inference.models import build_tiny

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(3600)]

GAME = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that vLLM's attention on a CPU can compute: its heads need a size of at least 32."""
    return build_tiny(tmp_path_factory.mktemp("vllm") / "tied", envs=GAME, words=0, width=128)


@pytest.fixture(scope="module")
def model(tied: Path) -> Path:
    """The same model with an output head of its own: see ``test_a_server_that_keeps_old_weights_is_noticed``."""
    import torch
    import transformers

    folder = tied.with_name("untied")
    shutil.copytree(tied, folder)
    network = transformers.AutoModelForCausalLM.from_pretrained(tied, dtype=torch.float32)
    network.config.tie_word_embeddings = False
    network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight.detach().clone())
    network.save_pretrained(folder)
    return folder


def settings(folder: Path, environment: str = "", **changes: Any) -> Any:
    """A run that starts its servers, in float32 on both sides. ``environment`` holds assignments for the servers' script."""
    from palestra.training import TrainConfig

    serve = f'{environment} DTYPE=float32 PORT="$2" exec sh "{SCRIPT}" serve "{vllm_venv()}" "$1"'
    data = {
        "model": {"path": str(folder), **changes.pop("model", {})},
        "envs": {GAME: 1.0},
        "play": {"tasks": 8, "group_size": 4, "max_tokens": 6, "deadline": 900.0},
        "warm_start": {"teacher": "random", "episodes": 256, "epochs": 4, "minibatches": 8, "learning_rate": 3e-3},
        "advantage": {"method": "rebn"},
        "learner": {"learning_rate": 1e-3},
        "samples": 0,
        **changes,
    }
    launch = {"command": ["sh", "-c", serve, "sh", "{model}", "{port}"], "patience": 900.0, **data.pop("launch", {})}
    return msgspec.convert({**data, "engine": {"kind": "vllm", "launch": launch, **data.pop("engine", {})}}, TrainConfig)


def metrics(folder: Path) -> list[dict[str, float]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def _kill_between_steps(folder: Path, fleet: Any, kills: int) -> None:
    """Kill the servers in turn, each after a step, the second one while the first one still starts."""
    for number in range(kills):
        steps = len(metrics(folder))
        while len(metrics(folder)) == steps:
            await asyncio.sleep(0.05)
        url = list(fleet.processes)[number % len(fleet.processes)]
        killed = fleet.processes[url]
        os.killpg(killed.pid, signal.SIGKILL)
        while fleet.processes[url] is killed:
            await asyncio.sleep(0.05)
        if number == 1:
            await fleet.wait()


async def _train(config: Any, folder: Path, kills: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Train while servers are killed. Every episode is used, and its log-probs are the learner's. Returns what the run said."""
    from palestra.inference.servers.launching import Fleet
    from palestra.training.assembly import assemble

    made: list[Any] = []
    said: list[str] = []

    class Noted(Fleet):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            made.append(self)

    monkeypatch.setattr("palestra.inference.choice.Fleet", Noted)
    trainer = assemble(config, folder, say=said.append)
    (fleet,) = made
    try:
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(_kill_between_steps(folder, fleet, kills))
            await trainer.train()
            assert killing.done(), "the run was shorter than the kills: give it more steps"
        processes = list(fleet.processes.values())
    finally:
        await trainer.engine.close()
        trainer.ledger.close()
    assert processes
    assert all(process.returncode is not None for process in processes)
    seen = metrics(folder)
    with Ledger(folder / "ledger") as ledger:
        assert ledger.audit().balanced
    assert [(step["episodes"], step["members/used"]) for step in seen] == [(32, 32)] * config.steps
    print(f"worst token of {len(seen)} steps: {max(step['sampler/worst_token'] for step in seen):.1e} nats")
    return said


def worst_token(folder: Path) -> float:
    return max(step["sampler/worst_token"] for step in metrics(folder))


def test_a_run_outlives_three_kills_of_its_servers(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = asyncio.run(_train(settings(model, steps=30, launch={"replicas": 2}), tmp_path, 3, monkeypatch))
    assert sum("ended with code -9 and is started again" in line for line in said) == 3
    assert worst_token(tmp_path) <= 1e-3


def test_a_run_swaps_adapters(tied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loading = 'VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 ARGUMENTS="--enable-lora --max-lora-rank 8"'
    lora = {"model": {"lora": {"rank": 8}}, "engine": {"transfer": "lora"}}
    asyncio.run(_train(settings(tied, loading, steps=8, **lora), tmp_path, 0, monkeypatch))
    assert worst_token(tmp_path) <= 1e-3


def test_a_server_that_keeps_old_weights_is_noticed(tied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With tied embeddings, vLLM 0.32 on a CPU packs the output head when it starts, and not again when it loads weights."""
    said = asyncio.run(_train(settings(tied, steps=4), tmp_path, 0, monkeypatch))
    assert sum("the engine seems to sample from other weights" in line for line in said) == 1


def test_the_exported_model_scores_the_same_in_transformers_and_in_vllm(model: Path, tmp_path: Path) -> None:
    from palestra.recipes.engine import EngineSettings
    from palestra.training import train

    def mean(policy: str, name: str, *options: str) -> float:
        arguments = ["eval", policy, "-e", GAME, "-n", "200", "--max-tokens", "6", "--out", str(tmp_path / name), "--json"]
        done = CliRunner().invoke(app, [*arguments, *options], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        suite: dict[str, Any] = json.loads(done.stdout)["report"]["suite"]
        assert suite["scored"] == 200
        return float(suite["score"]["mean"])

    train(msgspec.structs.replace(settings(model, steps=2), engine=EngineSettings()), tmp_path / "run", check=False)
    done = CliRunner().invoke(app, ["model", "export", str(tmp_path / "run")], catch_exceptions=False)
    folder = Path(done.stdout.strip())
    with vllm_server(folder, DTYPE="float32") as url:
        served = f"vllm:{url}", "--tokenizer", str(folder)
        # Sampled: five standard errors of the difference.
        assert mean(f"hf:{folder}", "a") == pytest.approx(mean(served[0], "b", *served[1:]), abs=0.15)
        greedy = "--temperature", "0"
        assert mean(f"hf:{folder}", "c", *greedy) == pytest.approx(mean(served[0], "d", *served[1:], *greedy), abs=0.01)
