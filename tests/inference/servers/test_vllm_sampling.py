"""The distribution that a real vLLM samples from if the model's folder sets another one.

The model ships a ``generation_config.json`` with a repetition penalty of 1.3. What the engine draws must still be the
learner's softmax. The request that the engine used to send is drawn from as well, to show that the tests can fail.

PALESTRA_VLLM_VENV=… pytest -m vllm -s tests/inference/servers/test_vllm_sampling.py
"""

import asyncio
import json
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.inference.servers.vllm_process import vllm_server, vllm_venv

from palestra.core import Sampling
from palestra.foundation.encoding import ints
from palestra.inference.models import build_tiny
from palestra.inference.servers.replica import ServerReplica
from palestra.inference.servers.vllm import VLLMEngine, completion_request

pytestmark = [pytest.mark.vllm, pytest.mark.torch, pytest.mark.timeout(3600)]

PROMPT = [40, 41, 42, 43, 44, 45, 46, 47, 40, 41, 42, 43]
DRAWS = 5000
SHARPNESS = 12.0
"""Scales the untrained head, so that its logits differ as much as a trained model's do."""


class OldRequest(VLLMEngine):
    """Sends what the engine sent before it stated every field."""

    async def _complete(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> Any:
        body = completion_request(self.model, prompt, sampling)
        for field in ("min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "ignore_eos", "min_tokens"):
            del body[field]
        return await self._post(replica, "/v1/completions", body)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One model twice: with a neutral generation_config.json, and with one that asks for a penalty."""
    import torch
    import transformers

    made = {}
    # vLLM's attention on a CPU knows heads of 32 and more: a width of 128.
    for name, asked in (("neutral", {}), ("penalised", {"repetition_penalty": 1.3, "min_p": 0.05, "max_new_tokens": 8})):
        folder = build_tiny(tmp_path_factory.mktemp("vllm") / name, envs="game:GuessTheNumber-v0-easy", words=320, width=128)
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        with torch.no_grad():
            model.model.norm.weight.mul_(SHARPNESS)
        model.save_pretrained(folder)
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": model.config.eos_token_id, **asked}))
        made[name] = folder
    return made


@pytest.fixture(scope="module")
def urls(folders: dict[str, Path]) -> Iterator[dict[str, str]]:
    settings = {"DTYPE": "float32", "GENERATION_CONFIG": "auto"}
    with vllm_server(folders["neutral"], **settings) as neutral, vllm_server(folders["penalised"], **settings) as penalised:
        yield {"neutral": neutral, "penalised": penalised}


@pytest.fixture
async def engines(urls: dict[str, str]) -> AsyncIterator[dict[str, VLLMEngine]]:
    made = {
        "neutral": VLLMEngine(urls["neutral"]),
        "penalised": VLLMEngine(urls["penalised"]),
        "old": OldRequest(urls["penalised"]),
    }
    for engine in made.values():
        await engine.connect()
    yield made
    for engine in made.values():
        await engine.close()


async def test_greedy_tokens_do_not_depend_on_the_models_generation_config(engines: dict[str, VLLMEngine]) -> None:
    drawn = {}
    for name, engine in engines.items():
        tokens, _ = await engine.generate(ints(PROMPT), Sampling(32, temperature=0.0))
        drawn[name] = tokens.ids.tolist()
    print(f"\n{drawn}")
    assert drawn["penalised"] == drawn["neutral"]
    assert len(drawn["neutral"]) == 32
    assert drawn["old"] != drawn["neutral"], "the test is blind if the penalty changes nothing"


async def test_five_thousand_first_tokens_fit_the_learners_softmax(
    engines: dict[str, VLLMEngine], folders: dict[str, Path]
) -> None:
    import torch
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folders["penalised"], dtype=torch.float32)
    with torch.no_grad():
        expected = torch.softmax(model(torch.tensor([PROMPT])).logits[0, -1].double(), dim=-1)
    chances = {name: _chi_square(await _first_tokens(engines[name]), expected) for name in ("penalised", "old")}
    print(f"\np of {DRAWS} first tokens under the learner's softmax: {chances}")
    assert chances["penalised"] > 1e-4
    assert chances["old"] < 1e-12, "the test is blind if the penalty changes nothing"


async def _first_tokens(engine: VLLMEngine) -> Counter[int]:
    places = asyncio.Semaphore(64)

    async def draw() -> int:
        async with places:
            tokens, _ = await engine.generate(ints(PROMPT), Sampling(1))
            return int(tokens.ids[0])

    return Counter(await asyncio.gather(*(draw() for _ in range(DRAWS))))


def _chi_square(counts: Counter[int], expected: Any) -> float:
    """How likely counts at least this far from ``expected`` are; words expected less than five times form one bin."""
    import torch

    observed = torch.tensor([counts[word] for word in range(len(expected))], dtype=torch.float64)
    expected = expected * DRAWS
    common = expected >= 5
    observed, expected = (torch.cat([of[common], of[~common].sum()[None]]) for of in (observed, expected))
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor((len(expected) - 1) / 2, dtype=torch.float64), statistic / 2))


_ASK_VLLM = """
import json, sys
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
known = CompletionRequest(**json.loads(sys.argv[1]))._DEFAULT_SAMPLING_PARAMS
odd = {name: value + 0.37 if isinstance(value, float) else 7 for name, value in known.items()}
odd["top_p"] = odd["min_p"] = 0.37
seen = []
for defaults in ({}, {**odd, "max_tokens": 3}):
    params = CompletionRequest(**json.loads(sys.argv[1])).to_sampling_params(9, defaults)
    params.update_from_generation_config({"eos_token_id": [7, 8]}, 7)
    seen.append({name: repr(getattr(params, name)) for name in params.__struct_fields__ if not name.startswith("_")})
print(json.dumps([sorted(odd), *seen]))
"""


def test_the_installed_vllm_overrides_no_field_of_a_request() -> None:
    body = completion_request("m", PROMPT, Sampling(9, stop_ids=(3,)))
    told = subprocess.run(
        [vllm_venv() / "bin" / "python", "-c", _ASK_VLLM, json.dumps(body)], capture_output=True, text=True, check=True
    )
    odd, plain, overridden = json.loads(told.stdout.splitlines()[-1])
    assert odd, "vLLM named the fields that it fills"
    assert set(odd) <= set(body)
    assert overridden == plain
    assert (plain["stop_token_ids"], plain["ignore_eos"]) == ("[3]", "True")
