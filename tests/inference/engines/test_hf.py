import asyncio
import copy
import gc
import time
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tests.inference.engines.llama import WORDS, tiny_llama

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import Ints, ints
from palestra.inference.engines.hf import HFEngine
from palestra.trajectory import Finish, Tokens

pytestmark = pytest.mark.torch


@pytest.fixture
async def engine() -> AsyncIterator[HFEngine]:
    engine = HFEngine(tiny_llama(), batch=4, rows=6, decode=lambda ids: "".join(chr(97 + token % 26) for token in ids))
    yield engine
    await engine.close()


def recomputed(model: Any, tokens: Tokens, temperature: float = 1.0) -> np.ndarray[Any, Any]:
    """The log-probs of the sampled ids in one separate pass over everything."""
    whole = torch.tensor([[*tokens.prompt.tolist(), *tokens.ids.tolist()]])
    with torch.no_grad():
        logprobs = torch.log_softmax(model(whole).logits[0].float() / temperature, dim=-1)
    start = len(tokens.prompt)
    return np.array([float(logprobs[start + at - 1, token]) for at, token in enumerate(tokens.ids.tolist())])


def prompt(seed: int, length: int) -> Ints:
    return ints(np.random.default_rng(seed).integers(3, WORDS, length))


async def episode(engine: HFEngine, seed: int, turns: int, **options: Any) -> list[Tokens]:
    random, session, context = np.random.default_rng(seed), EngineSession(), prompt(seed, 5 + seed % 11)
    out = []
    for turn in range(turns):
        sampling = Sampling(int(random.integers(1, 9)), seed=100 * seed + turn, **options)
        tokens, _ = await engine.generate(context, sampling, session)
        out.append(tokens)
        observed = random.integers(3, WORDS, int(random.integers(1, 12)))
        context = ints(np.concatenate([context, tokens.ids, observed]))
    return out


@pytest.mark.gate
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.slow
async def test_logprobs_are_those_of_a_separate_pass(engine: HFEngine, temperature: float) -> None:
    played = await asyncio.gather(*(episode(engine, seed, 5, temperature=temperature) for seed in range(16)))
    worst = max(
        float(np.abs(recomputed(engine.model, tokens, temperature) - tokens.logprobs).max())
        for turns in played
        for tokens in turns
    )
    assert worst <= 1e-4


@pytest.mark.parametrize("family", ["Qwen2", "Qwen3", "Mistral", "Phi3", "GPTNeoX"])
async def test_other_families_are_served_as_exactly(family: str) -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    more = {"max_position_embeddings": 256, "initializer_range": 0.4, "num_key_value_heads": 2, "pad_token_id": 0}
    config = getattr(transformers, f"{family}Config")(**sizes, **more, sliding_window=None)
    engine = HFEngine(getattr(transformers, f"{family}ForCausalLM")(config), batch=4)
    for turns in await asyncio.gather(*(episode(engine, seed, 3) for seed in range(6))):
        for tokens in turns:
            assert np.abs(recomputed(engine.model, tokens) - tokens.logprobs).max() <= 1e-4
    await engine.close()


async def test_a_seed_gives_the_same_tokens_alone_and_in_a_crowd(engine: HFEngine) -> None:
    alone = [await episode(engine, seed, 3) for seed in range(6)]
    crowd = await asyncio.gather(*(episode(engine, seed, 3) for seed in range(6)))
    assert [[turn.ids.tolist() for turn in turns] for turns in alone] == [[t.ids.tolist() for t in turns] for turns in crowd]


def test_how_long_environments_take_changes_no_batch() -> None:
    """Fast and slow episodes of one event loop join the same passes, so even the rounding is the same."""
    model = tiny_llama()

    async def crowd(pauses: list[float]) -> tuple[list[list[int]], list[Any]]:
        engine, passes = HFEngine(copy.deepcopy(model), batch=32, rows=32), list[list[int]]()
        compute = engine._compute

        def recorded(first: int, tokens: list[list[int]]) -> torch.Tensor:
            passes.append([first, *map(len, tokens)])
            return compute(first, tokens)

        engine._compute = recorded  # type: ignore[method-assign]
        try:
            played = await asyncio.gather(*(slow_episode(engine, seed, pauses[seed]) for seed in range(24)))
        finally:
            await engine.close()
        return passes, [(one.ids.tolist(), one.logprobs.tolist()) for turns in played for one in turns]

    async def slow_episode(engine: HFEngine, seed: int, pause: float) -> list[Tokens]:
        out, session, context = [], EngineSession(), prompt(seed, 5 + seed % 11)
        for turn in range(6):
            tokens, _ = await engine.generate(context, Sampling(1 + (seed + turn) % 7, seed=100 * seed + turn), session)
            out.append(tokens)
            time.sleep(pause)  # noqa: ASYNC251 - as an environment that computes in the event loop
            await asyncio.sleep(0)
            context = ints(np.concatenate([context, tokens.ids, prompt(turn, 3)]))
        return out

    quick = asyncio.run(crowd([0.0] * 24))
    for attempt in range(3):
        pauses = np.random.default_rng(attempt).uniform(0.0, 0.004, 24).tolist()
        assert asyncio.run(crowd(pauses)) == quick


@pytest.fixture
def seen(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of tokens that the engine has computed, one for each pass."""
    seen: list[int] = []
    begin = engine._arena.begin

    def spy(first: int, tokens: list[list[int]], device: Any) -> Any:
        seen.append(sum(map(len, tokens)))
        return begin(first, tokens, device)

    monkeypatch.setattr(engine._arena, "begin", spy)
    return seen


async def test_a_growing_context_computes_only_what_is_new(engine: HFEngine, seen: list[int]) -> None:
    session = EngineSession()
    tokens, _ = await engine.generate(prompt(0, 40), Sampling(4, seed=1), session)
    assert seen == [40, 1, 1, 1]
    seen.clear()
    longer = ints([*tokens.prompt, *tokens.ids, 7, 8])
    await engine.generate(longer, Sampling(1), session)
    assert seen == [3], "the last sampled token and two new ones"
    seen.clear()
    await engine.generate(ints([*longer[:30], 5]), Sampling(1), EngineSession())
    assert seen == [1], "a new context copies the prefix it shares with another"


async def test_what_newcomers_have_in_common_is_computed_once(engine: HFEngine, seen: list[int]) -> None:
    contexts = [ints([*prompt(0, 40), 3 + k, 9]) for k in range(4)]
    found = await asyncio.gather(*(engine.generate(one, Sampling(3, seed=k)) for k, one in enumerate(contexts)))
    assert seen == [40, 8, 4, 4]
    for generation in found:
        assert np.abs(recomputed(engine.model, generation.tokens) - generation.tokens.logprobs).max() < 1e-4


async def test_a_session_that_is_garbage_leaves_its_row(engine: HFEngine) -> None:
    for seed in range(20):
        await episode(engine, seed, 1)
    async with asyncio.timeout(60):
        while len(engine._rows):  # the engine's thread may still be at the end of the last call
            await asyncio.sleep(0.01)
            gc.collect()


@pytest.mark.gate
@pytest.mark.slow
async def test_new_weights_in_mid_completion_split_the_versions_and_every_logprob_is_its_versions_own() -> None:
    engine, old, new = HFEngine(tiny_llama(), batch=4), tiny_llama(), tiny_llama(1)
    request = asyncio.create_task(engine.generate(prompt(3, 9), Sampling(200, seed=5), EngineSession()))
    await asyncio.sleep(0)
    while not engine._active or len(engine._active[0].ids) < 3:
        await asyncio.sleep(0.001)
    await engine.update_weights(new.state_dict(), 1)
    tokens, _ = await request
    assert len(tokens.ids) == 200
    assert tokens.version == 0
    ((cut, version),) = tokens.updates
    assert version == 1
    assert 3 <= cut < 200
    before, after = recomputed(old, tokens), recomputed(new, tokens)
    assert np.abs(before[:cut] - tokens.logprobs[:cut]).max() <= 1e-4
    assert np.abs(after[cut:] - tokens.logprobs[cut:]).max() <= 1e-4
    await engine.close()


async def test_a_long_prompt_is_computed_in_pieces(engine: HFEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palestra.inference.engines.hf._LONGEST_PASS", 16)
    calls = [engine.generate(prompt(s, 20 + 40 * s), Sampling(4, seed=s)) for s in range(4)]
    for tokens, _ in await asyncio.gather(*calls):
        assert np.abs(recomputed(engine.model, tokens) - tokens.logprobs).max() <= 1e-4


@pytest.mark.gate
@pytest.mark.slow
async def test_pause_stops_sampling_and_resume_loses_nothing(engine: HFEngine) -> None:
    expected = (await engine.generate(prompt(3, 9), Sampling(120, seed=5))).tokens.ids.tolist()
    request = asyncio.create_task(engine.generate(prompt(3, 9), Sampling(120, seed=5)))
    await asyncio.sleep(0)
    await engine.pause()
    passes = engine._passes
    late = asyncio.create_task(engine.generate(prompt(4, 9), Sampling(3)))
    await asyncio.sleep(0.02)
    assert engine._passes == passes
    assert not late.done()
    await engine.resume()
    assert (await request).tokens.ids.tolist() == expected
    assert len((await late).tokens.ids) == 3


async def test_a_cancelled_request_leaves_the_batch(engine: HFEngine) -> None:
    request = asyncio.create_task(engine.generate(prompt(3, 9), Sampling(400)))
    await asyncio.sleep(0.01)
    request.cancel()
    await engine.generate(prompt(4, 9), Sampling(2))
    while engine._active or engine._waiting:
        await asyncio.sleep(0.001)


async def test_a_failing_pass_fails_every_request_and_the_engine_recovers(engine: HFEngine) -> None:
    model, kept = engine.model, engine.model.forward

    def fail(*_: Any, **__: Any) -> Any:
        raise RuntimeError("out of memory")

    model.forward = fail
    answers = await asyncio.gather(*(engine.generate(prompt(s, 9), Sampling(2)) for s in range(6)), return_exceptions=True)
    assert all(isinstance(answer, InfrastructureError) for answer in answers)
    model.forward = kept
    assert len((await engine.generate(prompt(1, 9), Sampling(2))).tokens.ids) == 2


async def test_stop_tokens_and_stop_strings_end_a_completion_and_are_part_of_it(engine: HFEngine) -> None:
    free = (await engine.generate(prompt(1, 9), Sampling(40, seed=2))).tokens.ids.tolist()
    stopped, finish = await engine.generate(prompt(1, 9), Sampling(40, seed=2, stop_ids=(free[5],)))
    assert finish is Finish.STOP
    assert stopped.ids.tolist() == free[: free.index(free[5]) + 1]
    letters = "".join(chr(97 + token % 26) for token in free)
    stopped, finish = await engine.generate(prompt(1, 9), Sampling(40, seed=2, stop=(letters[6:9],)))
    assert finish is Finish.STOP
    assert stopped.ids.tolist() == free[: letters.index(letters[6:9]) + 3]
    assert (await engine.generate(prompt(1, 9), Sampling(5, seed=2))).finish is Finish.LENGTH


async def test_greedy_takes_the_likeliest(engine: HFEngine) -> None:
    tokens, _ = await engine.generate(prompt(1, 9), Sampling(12, temperature=0.0))
    context = torch.tensor([tokens.prompt.tolist()])
    bare = engine.model.generate(
        context, attention_mask=torch.ones_like(context), max_new_tokens=12, do_sample=False, pad_token_id=0
    )
    assert bare[0, 9:].tolist() == tokens.ids.tolist()


@pytest.mark.parametrize("cut", [{"top_k": 3}, {"top_p": 0.4}, {"top_k": 5, "top_p": 0.6}])
async def test_cuts_keep_to_the_likeliest_and_logprobs_are_of_the_cut_distribution(
    engine: HFEngine, cut: dict[str, Any]
) -> None:
    answers = [await engine.generate(prompt(1, 9), Sampling(1, seed=seed, **cut)) for seed in range(60)]
    chances = {int(a.tokens.ids[0]): float(np.exp(a.tokens.logprobs[0])) for a in answers}
    assert len(chances) <= 5
    assert sum(chances.values()) <= 1 + 1e-5
    with torch.no_grad():
        full = torch.softmax(engine.model(torch.tensor([prompt(1, 9).tolist()])).logits[0, -1], -1)
    assert all(chance > float(full[token]) for token, chance in chances.items())


async def test_what_cannot_be_served_is_refused(engine: HFEngine) -> None:
    with pytest.raises(UsageError, match="do not fit"):
        await engine.generate(prompt(1, 500), Sampling(20))
    with pytest.raises(UsageError, match="do not fit"):
        await engine.generate(ints([]), Sampling(20))
    with pytest.raises(UsageError, match="does not have"):
        await engine.update_weights({"nobody": torch.zeros(1)}, 1)
    with pytest.raises(UsageError, match="stop strings"):
        await HFEngine(engine.model).generate(prompt(1, 5), Sampling(9, stop=("x",)))
    config = copy.deepcopy(engine.model.config)
    config.layer_types = ["sliding_attention", "full_attention"]
    with pytest.raises(UsageError, match="only models with full attention"):
        HFEngine(type("Windowed", (), {"config": config})())


def test_one_engine_serves_one_event_loop_after_another() -> None:
    engine = HFEngine(tiny_llama(), batch=4)
    answers: list[Generation] = [asyncio.run(engine.generate(prompt(1, 9), Sampling(4, seed=1))) for _ in range(2)]
    assert answers[0].tokens.ids.tolist() == answers[1].tokens.ids.tolist()
