"""Runs that start a real vLLM: killed, started again, stopped; and the exported model in it. ``.ci/nightly`` makes the venv.

PALESTRA_VLLM_VENV=… pytest -m vllm -s tests/training/test_vllm_training.py
"""

import asyncio
import json
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import transformers
from tests.engines.vllm_process import SCRIPT, answers, vllm_server, vllm_venv
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.durable.ledger import Ledger
from palestra.models import build_tiny
from palestra.training import TrainConfig, engines, train
from palestra.training.assembly import assemble
from palestra.training.config import EngineSettings
from palestra.training.launching import Fleet
from palestra.training.trainer import Trainer

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(3600)]

GAME = "game:GuessTheNumber-v0-easy"


@pytest.fixture(scope="module")
def tied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that vLLM's attention on a CPU can compute: its heads need a size of at least 32."""
    return build_tiny(tmp_path_factory.mktemp("vllm") / "tied", envs=GAME, words=0, width=128)


@pytest.fixture(scope="module")
def model(tied: Path) -> Path:
    """The same model with an output head of its own: see ``test_a_server_that_keeps_old_weights_is_noticed``."""
    folder = tied.with_name("untied")
    shutil.copytree(tied, folder)
    network = transformers.AutoModelForCausalLM.from_pretrained(tied, dtype=torch.float32)
    network.config.tie_word_embeddings = False
    network.lm_head.weight = torch.nn.Parameter(network.lm_head.weight.detach().clone())
    network.save_pretrained(folder)
    return folder


def settings(folder: Path, environment: str = "", **changes: Any) -> TrainConfig:
    """A run that starts its servers, in float32 on both sides. ``environment`` holds assignments for the servers' script."""
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
    launch = {"command": ["sh", "-c", serve, "sh", "{model}", "{port}"], "patience": 900.0}
    engine = {"kind": "vllm", "launch": {**launch, **data.pop("launch", {})}, **data.pop("engine", {})}
    return msgspec.convert({**data, "engine": engine}, TrainConfig)


def metrics(folder: Path) -> list[dict[str, float]]:
    path = folder / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def _kill_between_steps(trainer: Trainer, fleet: Fleet, kills: int) -> None:
    """Kill the servers in turn, each after a step, and the first one again when both are back.

    The second one ends while the first one still starts, so that no server can sample.
    """
    for number in range(kills):
        steps = len(metrics(trainer.folder))
        while len(metrics(trainer.folder)) == steps:
            await asyncio.sleep(0.05)
        url, other = (list(fleet.processes)[(number + more) % len(fleet.processes)] for more in (0, 1))
        assert number != 1 or not answers(other), "the first server is back already: its start was meant to overlap"
        killed = fleet.processes[url]
        os.killpg(killed.pid, signal.SIGKILL)
        while fleet.processes[url] is killed:
            await asyncio.sleep(0.05)
        if number == 1:
            await fleet.wait()


@pytest.fixture
def fleets(monkeypatch: pytest.MonkeyPatch) -> list[Fleet]:
    """The servers of the runs that the test makes."""
    made: list[Fleet] = []

    class Noted(Fleet):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            made.append(self)

    monkeypatch.setattr(engines, "Fleet", Noted)
    return made


async def _train(config: TrainConfig, folder: Path, kills: int, fleets: list[Fleet], say: list[str]) -> None:
    trainer = assemble(config, folder, say=say.append)
    (fleet,) = fleets
    try:
        async with asyncio.TaskGroup() as group:
            killing = group.create_task(_kill_between_steps(trainer, fleet, kills))
            await trainer.train()
            assert killing.done(), "the run was shorter than the kills: give it more steps"
        processes = list(fleet.processes.values())
    finally:
        await trainer.engine.close()
        trainer.ledger.close()
    assert processes
    for process in processes:
        assert process.returncode is not None
        await _wait_for_end_of_group(process.pid)


async def _wait_for_end_of_group(leader: int) -> None:
    """Return when the workers of an ended server are gone as well; they may need a moment."""
    async with asyncio.timeout(10):
        with suppress(ProcessLookupError):
            while True:
                os.killpg(leader, 0)
                await asyncio.sleep(0.05)


def check_steps(folder: Path, steps: int) -> None:
    """Every episode of every step was used, and its log-probs are those of the learner with the same weights."""
    seen = metrics(folder)
    assert len(seen) == steps
    with Ledger(folder / "ledger") as ledger:
        assert ledger.audit().balanced
    assert {step["episodes"] for step in seen} == {32}
    assert sum(step["members/used"] for step in seen) == 32 * steps
    worst = max(step["sampler/worst_token"] for step in seen)
    print(f"worst token of {steps} steps: {worst:.1e} nats")
    assert worst <= 1e-3


def test_a_run_outlives_three_kills_of_its_servers(model: Path, fleets: list[Fleet], tmp_path: Path) -> None:
    said: list[str] = []
    config = settings(model, steps=30, launch={"replicas": 2})
    asyncio.run(_train(config, tmp_path / "run", 3, fleets, said))
    assert sum("ended with code -9 and is started again" in line for line in said) == 3
    check_steps(tmp_path / "run", 30)


def test_a_run_swaps_adapters(tied: Path, fleets: list[Fleet], tmp_path: Path) -> None:
    loading = 'VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 ARGUMENTS="--enable-lora --max-lora-rank 8"'
    lora = {"model": {"lora": {"rank": 8}}, "engine": {"transfer": "lora"}}
    asyncio.run(_train(settings(tied, loading, steps=8, **lora), tmp_path / "run", 0, fleets, []))
    check_steps(tmp_path / "run", 8)


def test_a_server_that_keeps_old_weights_is_noticed(tied: Path, fleets: list[Fleet], tmp_path: Path) -> None:
    """With tied embeddings, vLLM 0.32 on a CPU packs the output head when it starts, and not again when it loads weights."""
    said: list[str] = []
    asyncio.run(_train(settings(tied, steps=4), tmp_path / "run", 0, fleets, said))
    assert sum("the engine seems to sample from other weights" in line for line in said) == 1


def played(policy: str, folder: Path, *options: str) -> dict[str, Any]:
    """Play 200 tasks through the command line; the mean reward with its interval."""
    arguments = ["eval", policy, "-e", GAME, "-n", "200", "--max-tokens", "6", "--out", str(folder), "--json", *options]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)["report"]["suite"]
    assert found["scored"] == 200
    score: dict[str, Any] = found["score"]
    return score


def test_the_exported_model_scores_the_same_in_transformers_and_in_vllm(model: Path, tmp_path: Path) -> None:
    config = settings(model, steps=2)
    train(msgspec.structs.replace(config, engine=EngineSettings()), tmp_path / "run", check=False)
    done = CliRunner().invoke(app, ["model", "export", str(tmp_path / "run")], catch_exceptions=False)
    folder = Path(done.stdout.strip())
    greedy = ("--temperature", "0")
    local = [played(f"hf:{folder}", tmp_path / name, *options) for name, options in (("a", ()), ("b", greedy))]
    with vllm_server(folder, DTYPE="float32") as url:
        options = ("--tokenizer", str(folder))
        served = [played(f"vllm:{url}", tmp_path / name, *options, *more) for name, more in (("c", ()), ("d", greedy))]
    print(f"sampled: {local[0]} and {served[0]}; greedy: {local[1]['mean']} and {served[1]['mean']}")
    assert local[0]["mean"] == pytest.approx(served[0]["mean"], abs=0.15)  # five standard errors of the difference
    assert served[1]["mean"] == pytest.approx(local[1]["mean"], abs=0.01)
