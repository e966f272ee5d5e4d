"""Against a real vLLM server that serves SmolLM2. ``.ci/nightly`` makes the venv for it.

PALESTRA_VLLM_VENV=… pytest -m vllm -s tests/inference/servers/test_vllm_server.py
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.inference.servers.vllm_process import vllm_server

from palestra.core import Sampling
from palestra.foundation.encoding import ints
from palestra.inference.models import fetch_smollm2
from palestra.inference.rendering import renderer_for
from palestra.inference.servers.replica import LoraAdapter, ServerReplica
from palestra.inference.servers.vllm import VLLMEngine
from palestra.policies.sampled import SampledPolicy
from palestra.policies.shots import OracleShots
from palestra.rollouts import rollout
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, Turn

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(3600)]

EPISODES = 200


class Watched(VLLMEngine):
    """Notes what went over the wire."""

    aborted = 0

    async def _complete(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> Any:
        answer = await super()._complete(replica, prompt, sampling)
        (choice,) = answer["choices"]
        assert choice["prompt_token_ids"] == prompt
        assert not choice["token_ids"] or len(choice["token_ids"]) == len(choice["logprobs"]["token_logprobs"])
        self.aborted += choice["finish_reason"] == "abort"
        return answer


@pytest.fixture(scope="module")
def model() -> Path:
    return fetch_smollm2()


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    with vllm_server(model) as url:
        yield url


@pytest.fixture
async def engine(url: str) -> AsyncIterator[Watched]:
    engine = Watched(url, timeout=1800.0)
    await engine.connect()
    yield engine
    await engine.close()


async def test_two_hundred_episodes_with_a_change_of_weights_in_the_middle(engine: Watched, model: Path) -> None:
    import transformers

    renderer = renderer_for(transformers.AutoTokenizer.from_pretrained(model))
    policy = SampledPolicy(renderer, engine, Sampling(24), shots=OracleShots(1))
    played: list[Trajectory] = []
    changed: asyncio.Task[None] | None = None
    options: Any = {"n": EPISODES, "concurrency": 32, "seed": 0, "deadline": 1800.0}
    async for trajectory in rollout("game:GuessTheNumber-v0-easy", policy, **options):
        played.append(trajectory)
        if len(played) == EPISODES // 4:
            changed = asyncio.create_task(engine.update_weights(model, 1))
    assert changed is not None
    await changed
    assert len(played) == EPISODES
    assert sum(len(trajectory.turns) for trajectory in played) > EPISODES, "the episodes have several turns"
    assert {span.version for t in played for segment in t.segments for span in segment.spans} == {0, 1}
    assert engine.aborted > 0, "something was under way when the weights changed"
    assert all(len(trajectory.segments) == 1 for trajectory in played)
    assert not any(trajectory.stop is StopReason.ERROR or trajectory.failures for trajectory in played)


async def test_a_stop_token_is_part_of_what_was_sampled_and_logprobs_are_of_the_tempered_distribution(engine: Watched) -> None:
    tokens, _ = await engine.generate(ints(range(20, 40)), Sampling(20, temperature=0.0))
    stop = int(tokens.ids[3])
    stopped, finish = await engine.generate(ints(range(20, 40)), Sampling(20, temperature=0.0, stop_ids=(stop,)))
    assert finish.value == "stop"
    assert int(stopped.ids[-1]) == stop
    hot = await engine.generate(ints(range(20, 60)), Sampling(1, top_k=1))
    cold = await engine.generate(ints(range(20, 60)), Sampling(1, temperature=0.25, top_k=1))
    assert hot.tokens.ids.tolist() == cold.tokens.ids.tolist()
    assert float(cold.tokens.logprobs[0]) == pytest.approx(0.0, abs=1e-5), "the server runs with processed_logprobs"


@pytest.mark.filterwarnings("ignore::UserWarning:peft")
async def test_an_adapter_samples_what_the_learner_computes(model: Path, tmp_path: Path) -> None:
    import torch

    from palestra.recipes.learner import LearnerConfig, PackingConfig
    from palestra.recipes.model import LoraSettings, ModelConfig
    from palestra.training.learner.batch import Batch
    from palestra.training.learner.learner import Learner
    from palestra.training.learner.loading import load_model

    network = load_model(ModelConfig(str(model), lora=LoraSettings(rank=8)))
    learner = Learner(network, LearnerConfig(packing=PackingConfig(1024)))
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.02)
    learner.write_adapters(tmp_path, "float32")
    lent = {"ARGUMENTS": "--enable-lora --max-lora-rank 8", "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1", "DTYPE": "float32"}
    prompt = ints([1, 4093, 198, 1780, 314, 260])
    with vllm_server(model, **lent) as url:
        engine = await VLLMEngine([url]).connect()
        before = await engine.generate(prompt, Sampling(24))
        await engine.update_weights(LoraAdapter(str(tmp_path), "version-1"), 1)
        after = await engine.generate(prompt, Sampling(24))
        await engine.close()
    for made, bar in ((after, 1e-3), (before, None)):
        ids = [*prompt.tolist(), *made.tokens.ids.tolist()]
        segment = Segment(ints(ids), (Span(len(prompt), len(ids), 0, 0),), made.tokens.logprobs)
        turn = Turn("", Completion("x"), 0.0)
        batch = Batch.of([Trajectory(Task("game:x", 0), StopReason.TERMINATED, turns=(turn,), segments=(segment,))])
        worst = float(np.abs(learner.measure(batch).logprobs - batch.sampled).max())
        assert worst <= bar if bar is not None else worst > 0.05, worst
