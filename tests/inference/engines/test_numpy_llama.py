import asyncio
import gc
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.core import EngineSession, Sampling
from palestra.errors import Unsupported
from palestra.foundation.encoding import ints
from palestra.inference.engines.hf import HFEngine
from palestra.inference.engines.numpy_llama import Llama, NumpyEngine
from palestra.trajectory import Finish

pytestmark = pytest.mark.torch

WORDS = 61


def network(layers: int, heads: int, spread: float, seed: int) -> Any:
    """A Llama in the form that ``build_tiny`` makes."""
    config = transformers.LlamaConfig(
        vocab_size=WORDS, hidden_size=8 * heads, intermediate_size=24 * heads, num_hidden_layers=layers,
        num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=128, initializer_range=spread,
        tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return transformers.LlamaForCausalLM(config).eval()


def llama(model: Any) -> Llama:
    weights = {name: one.numpy() for name, one in model.state_dict().items()}
    return Llama(weights, heads=model.config.num_attention_heads, context_length=128)


@pytest.fixture(scope="module")
def model() -> Any:
    return network(2, 4, 0.4, 0)


@given(
    layers=st.integers(1, 3),
    heads=st.integers(1, 4),
    seed=st.integers(0, 1000),
    ids=st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=40),
    cut=st.integers(0, 40),
)
@settings(max_examples=12, deadline=None)
def test_logits_are_those_of_torch(layers: int, heads: int, seed: int, ids: list[int], cut: int) -> None:
    model = network(layers, heads, 0.2, seed)
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    ours = llama(model)
    context = ours.new_context()
    pieces = [ours.logits(piece, context) for piece in (ids[:cut], ids[cut:]) if piece]  # in one pass, or with cached keys
    assert np.abs(np.concatenate(pieces) - expected).max() <= 1e-5


async def sampled(engine: Any, sampling: Sampling) -> list[Any]:
    session, prompt, turns = EngineSession(), ints([5, 6, 7]), []
    for turn in range(3):
        tokens, finish = await engine.generate(prompt, Sampling(**{**_plain(sampling), "seed": turn}), session)
        turns.append((tokens.ids.tolist(), [round(float(one), 4) for one in tokens.logprobs], finish))
        prompt = ints([*prompt.tolist(), *tokens.ids.tolist(), 8 + turn])
    return turns


def _plain(sampling: Sampling) -> dict[str, Any]:
    return {name: getattr(sampling, name) for name in sampling.__struct_fields__}


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=6),
        Sampling(max_tokens=6, temperature=0.0),
        Sampling(max_tokens=6, temperature=0.7, top_k=5, top_p=0.8),
    ],
    ids=["plain", "greedy", "cut"],
)
async def test_a_seed_gives_the_tokens_of_the_engine_with_torch(model: Any, sampling: Sampling) -> None:
    torches = HFEngine(model)
    try:
        expected = await sampled(torches, sampling)
    finally:
        await torches.close()
    found = await sampled(NumpyEngine(llama(model)), sampling)
    assert [(ids, finish) for ids, _, finish in found] == [(ids, finish) for ids, _, finish in expected]
    assert np.allclose(
        [one for _, probs, _ in found for one in probs], [one for _, probs, _ in expected for one in probs], atol=2e-4
    )


async def test_a_session_computes_only_what_is_new_and_is_forgotten_with_its_owner(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = llama(model)
    engine, session, computed = NumpyEngine(ours), EngineSession(), []
    plain = ours.logits

    def counted(ids: list[int], context: Any = None) -> Any:
        computed.append(len(ids))
        return plain(ids, context)

    monkeypatch.setattr(ours, "logits", counted)
    first, _ = await engine.generate(ints([1] * 20), Sampling(max_tokens=2, seed=0), session)
    again, _ = await engine.generate(ints([1] * 20), Sampling(max_tokens=2, seed=0), session)
    assert first.ids.tolist() == again.ids.tolist()
    await engine.generate(ints([*[1] * 15, 2, 3, 4]), Sampling(max_tokens=1, seed=0), session)  # parts after 15
    assert computed == [20, 1, 1, 1, 3]
    del session
    gc.collect()
    assert not engine._contexts


async def test_it_stops_at_a_stop_token_pauses_and_refuses_what_it_cannot_do(model: Any) -> None:
    engine = NumpyEngine(llama(model))
    whole = await engine.generate(ints([3]), Sampling(max_tokens=5, temperature=0.0))
    assert whole.finish is Finish.LENGTH
    stop = int(whole.tokens.ids[0])
    stopped = await engine.generate(ints([3]), Sampling(max_tokens=5, temperature=0.0, stop_ids=(stop,)))
    assert (stopped.tokens.ids.tolist(), stopped.finish) == ([stop], Finish.STOP)
    await engine.pause()
    waiting = asyncio.create_task(engine.generate(ints([3]), Sampling(max_tokens=1)))
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done
    await engine.resume()
    assert len((await waiting).tokens.ids) == 1
    with pytest.raises(Unsupported, match="cannot load new weights"):
        await engine.update_weights({}, 1)
    with pytest.raises(Unsupported, match="stop_ids"):
        await engine.generate(ints([3]), Sampling(stop=("x",)))
