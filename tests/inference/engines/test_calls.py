"""``CallEngine`` under ``SampledPolicy``: the tokens of the other program arrive unchanged, and its mistakes are errors."""

from typing import Any

import numpy as np
import pytest
from tests.inference.rendering.zoo import tokenizer

from palestra import SampledPolicy, StopReason, Task, flatten, play
from palestra.core import Sampling
from palestra.errors import PolicyError, Unsupported
from palestra.foundation.encoding import ints
from palestra.inference.engines.calls import CallEngine, Sampled
from palestra.inference.rendering import TemplateRenderer
from palestra.trajectory import Finish

pytestmark = pytest.mark.torch
TASK = Task("game:GuessTheNumber-v0-easy", 3)


async def test_the_tokens_of_the_call_are_the_tokens_of_the_trajectory() -> None:
    words = tokenizer("chatml")
    asked: list[list[int]] = []
    answered: list[list[int]] = []

    async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
        asked.append(prompt_ids)
        ids = [*words.encode(f"\\boxed{{{11 - len(asked)}}}", add_special_tokens=False), sampling.stop_ids[0]]
        answered.append(ids)
        return Sampled(ids, [-(at + 1) / 64 for at in range(len(ids))], True, version=len(asked))

    policy = SampledPolicy(TemplateRenderer(words), CallEngine(call, context_length=4096), Sampling(max_tokens=64))
    trajectory = await play(TASK, policy)
    assert not trajectory.stop.failed
    assert len(trajectory.turns) == len(asked) > 1
    (flat,) = flatten(trajectory)
    whole = [*flat.prompt, *flat.response]
    for turn, (prompt, ids) in enumerate(zip(asked, answered, strict=True)):
        assert whole[: len(prompt) + len(ids)] == prompt + ids
        of_turn = flat.turns == turn
        assert flat.response[of_turn].tolist() == ids
        assert flat.logprobs[of_turn].tolist() == [-(at + 1) / 64 for at in range(len(ids))]
        assert set(flat.versions[of_turn].tolist()) == {turn + 1}


async def test_a_failing_call_is_a_failure_of_the_episode() -> None:
    async def call(prompt_ids: list[int], sampling: Sampling) -> Any:
        raise RuntimeError("the sampler is gone")

    policy = SampledPolicy(TemplateRenderer(tokenizer("chatml")), CallEngine(call, context_length=4096))
    trajectory = await play(TASK, policy, retries=0)
    assert trajectory.stop is StopReason.ERROR
    assert "the sampler is gone" in trajectory.failures[0].message


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (([1, 2], [-0.5], True), "2 token ids but 1 log-probs"),
        (([1, 2, 3], [-1, -1, -1], True), "3 tokens, more than"),
        (([1, 2], [-1, -1], True, [5]), "2 token ids but 1 versions"),
        (([1, 2], [-1, float("nan")], True), "a log-prob that is not a number"),
    ],
)
async def test_an_answer_that_cannot_be_right_is_refused(answer: Any, message: str) -> None:
    async def call(prompt_ids: list[int], sampling: Sampling) -> Any:
        return answer

    with pytest.raises(PolicyError, match=message):
        await CallEngine(call, context_length=9).generate(ints([1]), Sampling(max_tokens=2))


async def test_a_plain_tuple_has_the_version_of_the_engine_and_a_cut_is_seen() -> None:
    async def call(prompt_ids: list[int], sampling: Sampling) -> Any:
        return [5], [-1.0], False

    engine = CallEngine(call, context_length=9)
    engine.version = 4
    tokens, finish = await engine.generate(ints([1]), Sampling(max_tokens=2))
    assert (tokens.version, finish) == (4, Finish.LENGTH)
    with pytest.raises(Unsupported, match="owns them"):
        await engine.update_weights(None, 5)


@pytest.mark.parametrize(
    ("versions", "first", "updates"),
    [
        ([7, 7, 7, 7], 7, ()),
        ([7, 8, 8, 9], 7, ((1, 8), (3, 9))),
        (np.array([7, 8, 8, 9]), 7, ((1, 8), (3, 9))),
        (4, 4, ()),
        (np.int64(4), 4, ()),
        (None, 3, ()),
    ],
)
async def test_the_weights_may_change_during_a_call(versions: Any, first: int, updates: Any) -> None:
    async def call(prompt_ids: list[int], sampling: Sampling) -> Sampled:
        return Sampled([1, 2, 3, 4], [-1.0] * 4, True, versions)

    tokens, _ = await CallEngine(call, context_length=64, version=3).generate(ints([5]), Sampling(max_tokens=8))
    assert (tokens.version, tokens.updates) == (first, updates)
