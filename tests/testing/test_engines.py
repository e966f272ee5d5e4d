"""The conformance suite of engines: ours pass it, and engines that break the contract are found."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
from tests.inference.servers.servers import Server, serving

from palestra.core import EngineSession, Generation, Sampling
from palestra.foundation.encoding import Ints, floats, ints
from palestra.inference.servers.sglang import SGLangEngine
from palestra.inference.servers.vllm import VLLMEngine
from palestra.testing.conformance import ConformanceResult
from palestra.testing.engines import CHECKS, EngineCase, EngineCheck, conformance
from palestra.testing.scripted import ScriptedEngine
from palestra.trajectory import Finish, Tokens

PROMPT = ints([5, 6, 7])


def count_up(prompt: Ints, sampling: Sampling) -> Sequence[int]:
    return [10 + len(prompt) + n for n in range(12)]


@pytest.fixture(params=["scripted", "hf", "vllm", "sglang"])
async def case(request: pytest.FixtureRequest) -> AsyncIterator[EngineCase]:
    async with AsyncExitStack() as stack:
        match request.param:
            case "scripted":
                yield EngineCase(ScriptedEngine(count_up, context_length=256), PROMPT)
            case "hf":
                yield _hf(stack)
            case name:
                url = await stack.enter_async_context(serving(Server().app()))
                engine = VLLMEngine([url]) if name == "vllm" else SGLangEngine([url])
                await engine.connect()
                stack.push_async_callback(engine.close)
                yield EngineCase(engine, PROMPT, "new")


def _hf(stack: AsyncExitStack) -> EngineCase:
    from tests.inference.engines.llama import tiny_llama

    from palestra.inference.engines.hf import HFEngine

    model = tiny_llama()
    engine = HFEngine(model, batch=4)
    stack.push_async_callback(engine.close)
    return EngineCase(engine, PROMPT, model.state_dict())


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_our_engines_keep_the_contract(check: EngineCheck, case: EngineCase) -> None:
    await check(case)


class Broken(ScriptedEngine):
    """An engine with one fault, by name."""

    def __init__(self, fault: str) -> None:
        super().__init__(count_up, context_length=256)
        self._fault = fault
        self._calls = 0

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        self._calls += 1
        if self._fault == "context":
            self.context_length, kept = 2**20, self.context_length
            try:
                return await super().generate(prompt, sampling, session)
            finally:
                self.context_length = kept
        if self._fault == "pause":
            self._running.set()
        return self._spoilt(*await super().generate(prompt, sampling, session))

    def _spoilt(self, tokens: Tokens, finish: Finish) -> Generation:
        ids, logprobs, prompt, version = tokens.ids, tokens.logprobs, tokens.prompt, tokens.version
        match self._fault:
            case "prompt":
                prompt = ints([*prompt[:-1], 99])
            case "positive":
                logprobs = floats(-logprobs)
            case "missing":
                logprobs = floats(logprobs[:-1])
            case "finish":
                finish = Finish.STOP if finish is Finish.LENGTH else Finish.LENGTH
            case "seed":
                ids = ints(ids + self._calls)
            case "version":
                version = 0
        return Generation(Tokens(prompt, ids, logprobs, version), finish)


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ("prompt", "returns_the_prompt_and_new_ids"),
        ("prompt", "answers_many_at_once"),
        ("positive", "gives_every_id_a_logprob"),
        ("missing", "gives_every_id_a_logprob"),
        ("finish", "stops_at_the_token_limit"),
        ("finish", "stops_at_a_stop_id"),
        ("seed", "repeats_a_seed"),
        ("seed", "continues_a_session"),
        ("context", "keeps_to_the_context_length"),
        ("pause", "waits_while_paused"),
        ("version", "stamps_versions"),
    ],
)
async def test_an_engine_that_breaks_the_contract_is_found(fault: str, check: str) -> None:
    problems = {result.check for result in await conformance(EngineCase(Broken(fault), PROMPT)) if result.problem}
    assert check in problems


async def test_an_engine_that_dies_with_a_cancelled_request_is_found() -> None:
    class Dying(ScriptedEngine):
        alive = True

        async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
            alive, self.alive = self.alive, False
            if not alive:
                raise RuntimeError("the engine is gone")
            generation = await super().generate(prompt, sampling, session)
            self.alive = True
            return generation

    engine = Dying(count_up)
    await engine.pause()
    survives = CHECKS[-1]
    assert survives.__name__ == "survives_a_cancelled_request"
    with pytest.raises(RuntimeError, match="gone"):
        await survives(EngineCase(engine, PROMPT))


async def test_a_fault_is_reported_with_what_was_expected_and_what_was_got() -> None:
    results = await conformance(EngineCase(Broken("version"), PROMPT))
    (found,) = [result for result in results if result.check == "stamps_versions"]
    assert found == ConformanceResult("stamps_versions", "BrokenContract: expected version 1, got 0")
