import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.inference.servers.servers import LENGTH, Server, next_token, serving

from palestra.core import EngineSession, Sampling
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.foundation.encoding import ints
from palestra.inference.servers import remote
from palestra.inference.servers.remote import RemoteEngine
from palestra.inference.servers.replica import SampledPart, ServerReplica
from palestra.inference.servers.sglang import SGLangEngine
from palestra.inference.servers.vllm import VLLMEngine
from palestra.trajectory import Finish

PROMPT = ints([5, 6, 7])


class WorkerProvider:
    """Two servers and an engine on them."""

    def __init__(self, engine: RemoteEngine, servers: list[Server]) -> None:
        self.engine = engine
        self.servers = servers


@pytest.fixture(params=[VLLMEngine, SGLangEngine])
async def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[WorkerProvider]:
    monkeypatch.setattr(remote, "LONGEST_WAIT", 0.01)
    servers = [Server(), Server()]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(server.app())) for server in servers]
        engine = request.param(urls)
        await engine.connect()
        yield WorkerProvider(engine, servers)
        await engine.close()


def written(prompt: list[int], n: int, weights: str = "base") -> list[int]:
    context = list(prompt)
    for _ in range(n):
        context.append(next_token(context, weights))
    return context[len(prompt) :]


async def test_ids_go_in_and_come_out(provider: WorkerProvider) -> None:
    assert (provider.engine.context_length, provider.engine.model) == (LENGTH, "stub")
    tokens, finish = await provider.engine.generate(PROMPT, Sampling(5))
    assert tokens.prompt is PROMPT
    assert tokens.ids.tolist() == written([5, 6, 7], 5)
    assert tokens.logprobs.tolist() == [-0.5] * 5
    assert finish is Finish.LENGTH
    stop = int(tokens.ids[2])
    tokens, finish = await provider.engine.generate(PROMPT, Sampling(5, stop_ids=(stop,)))
    assert finish is Finish.STOP
    assert int(tokens.ids[-1]) == stop


@pytest.mark.parametrize("faults", [["500"], ["cut"], ["429", "500", "cut"]], ids="-".join)
async def test_a_failed_call_is_made_again_and_the_turn_is_there_once(provider: WorkerProvider, faults: list[str]) -> None:
    for server in provider.servers:
        server.faults.extend(faults)
    tokens, _ = await provider.engine.generate(PROMPT, Sampling(5))
    assert tokens.ids.tolist() == written([5, 6, 7], 5)


@pytest.mark.parametrize(
    ("fault", "error", "named", "calls"),
    [("500", InfrastructureError, "6 calls failed", 6), ("400", PolicyError, "refused the call", 1)],
)
async def test_a_call_that_keeps_failing_ends_and_a_refused_one_is_not_repeated(
    provider: WorkerProvider, fault: str, error: type[Exception], named: str, calls: int
) -> None:
    for server in provider.servers:
        server.faults.extend([fault] * 20)
    with pytest.raises(error, match=named):
        await provider.engine.generate(PROMPT, Sampling(5))
    assert sum(20 - len(server.faults) for server in provider.servers) == calls


async def test_calls_spread_and_a_session_stays(provider: WorkerProvider) -> None:
    for server in provider.servers:
        server.pace = 0.001
    sessions = [EngineSession() for _ in range(16)]
    for _ in range(2):
        await asyncio.gather(*(provider.engine.generate(PROMPT, Sampling(5), session) for session in sessions))
    assert [server.calls for server in provider.servers] == [16, 16]
    await asyncio.gather(*(provider.engine.generate(PROMPT, Sampling(5), sessions[0]) for _ in range(4)))
    assert sorted(server.calls for server in provider.servers) == [16, 20]


async def test_a_session_leaves_a_replica_that_is_much_busier(provider: WorkerProvider) -> None:
    for server in provider.servers:
        server.pace = 0.001
    session = EngineSession()
    await asyncio.gather(*(provider.engine.generate(PROMPT, Sampling(3), session) for _ in range(40)))
    assert min(server.calls for server in provider.servers) >= 10


async def test_new_weights_in_mid_completion_lose_nothing_and_every_token_has_its_version(provider: WorkerProvider) -> None:
    for server in provider.servers:
        server.pace = 0.001
    calls = [asyncio.create_task(provider.engine.generate(ints([5, 6, 7 + k]), Sampling(60))) for k in range(8)]
    while min(server.written for server in provider.servers) < 20:
        await asyncio.sleep(0.001)
    await provider.engine.update_weights("new", 1)
    for k, call in enumerate(calls):
        tokens, finish = await call
        assert len(tokens.ids) == 60
        assert finish is Finish.LENGTH
        ((cut, version),) = tokens.updates
        assert (tokens.version, version) == (0, 1)
        before = written([5, 6, 7 + k], cut)
        after = written([5, 6, 7 + k, *before], 60 - cut, "new")
        assert tokens.ids.tolist() == before + after
    assert (await provider.engine.generate(PROMPT, Sampling(2))).tokens.version == 1


async def test_a_pause_holds_new_calls_back(provider: WorkerProvider) -> None:
    await provider.engine.pause()
    call = asyncio.create_task(provider.engine.generate(PROMPT, Sampling(2)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert sum(server.calls for server in provider.servers) == 0
    await provider.engine.update_weights("new", 3)
    assert not call.done()
    await provider.engine.resume()
    assert (await call).tokens.version == 3


async def test_a_part_that_may_be_of_either_version_is_sampled_again(provider: WorkerProvider) -> None:
    provider.servers[0].pace = provider.servers[1].pace = 0.002
    call = asyncio.create_task(provider.engine.generate(PROMPT, Sampling(10)))
    while not any(server.written for server in provider.servers):
        await asyncio.sleep(0.001)
    for replica, server in zip(provider.engine.replicas, provider.servers, strict=True):
        replica.version, server.weights = 1, "new"  # as if the call had reached the server only after the change
    provider.engine.version = 1
    tokens, _ = await call
    assert tokens.version == 1
    assert tokens.ids.tolist() == written([5, 6, 7], 10, "new")


async def test_a_replica_that_was_away_gets_the_current_weights_before_any_call(provider: WorkerProvider) -> None:
    await provider.engine.update_weights("new", 1)
    lost = provider.servers[0]
    lost.weights = "base"  # restarted
    provider.engine._suspect(provider.engine.replicas[0])
    answers = await asyncio.gather(*(provider.engine.generate(PROMPT, Sampling(3)) for _ in range(8)))
    assert {tuple(answer.tokens.ids.tolist()) for answer in answers} == {tuple(written([5, 6, 7], 3, "new"))}
    while not provider.engine.replicas[0].healthy:
        await asyncio.sleep(0.005)
    assert lost.weights == "new"


@pytest.mark.parametrize("tamper", ["prompt", "logprobs", "text"])
async def test_an_answer_that_is_not_what_was_asked_for_is_refused(provider: WorkerProvider, tamper: str) -> None:
    if isinstance(provider.engine, SGLangEngine) and tamper != "prompt":
        return
    for server in provider.servers:
        server.tamper = tamper
    with pytest.raises(PolicyError):
        await provider.engine.generate(PROMPT, Sampling(5))


@pytest.mark.parametrize("sampling", [Sampling(2, 0.7), Sampling(2, top_k=5), Sampling(2, top_p=0.9)], ids=repr)
async def test_unprocessed_logprobs_are_refused_where_the_distribution_is_reshaped(sampling: Sampling) -> None:
    server = Server()
    async with serving(server.app()) as url:
        engine = VLLMEngine(url)
        await engine.generate(PROMPT, sampling)
        await engine.close()
        server.processed = False
        engine = VLLMEngine(url)
        await engine.generate(PROMPT, Sampling(2, temperature=1.0))
        with pytest.raises(UsageError, match="processed_logprobs"):
            await engine.generate(PROMPT, sampling)
        await engine.close()


async def test_each_server_is_asked_whether_its_logprobs_are_processed(provider: WorkerProvider) -> None:
    if not isinstance(provider.engine, VLLMEngine):
        return
    provider.servers[1].processed = False
    with pytest.raises(UsageError, match=provider.engine.replicas[1].url):
        await asyncio.gather(*(provider.engine.generate(PROMPT, Sampling(2, 0.7)) for _ in range(2)))


# ------------------------------------------------------------------------------------------------------ what a request states

NEUTRAL = {"min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "n": 1}
OVERRIDDEN_BY_VLLM = {*NEUTRAL, "temperature", "top_k", "top_p", "max_tokens", "stop_token_ids", "ignore_eos", "min_tokens"}
"""What vLLM 0.32 fills from ``generation_config.json`` or its own defaults (``ModelConfig.get_diff_sampling_param``,
``SamplingParams.update_from_generation_config``); ``tests/inference/servers/test_vllm_sampling.py`` asks the installed vLLM
itself."""
OVERRIDDEN_BY_SGLANG = {*NEUTRAL, "temperature", "top_k", "top_p", "max_new_tokens", "stop_token_ids", "min_new_tokens"}


async def test_a_request_states_every_field_that_the_server_would_fill_in(provider: WorkerProvider) -> None:
    await provider.engine.generate(PROMPT, Sampling(5, stop_ids=(3,)))
    (body,) = (body for server in provider.servers for body in server.bodies)
    vllm = isinstance(provider.engine, VLLMEngine)
    stated = body if vllm else body["sampling_params"]
    missing = {field for field in (OVERRIDDEN_BY_VLLM if vllm else OVERRIDDEN_BY_SGLANG) if stated.get(field) is None}
    assert not missing
    assert {field: stated[field] for field in NEUTRAL} == NEUTRAL
    assert (stated["temperature"], stated["top_p"], stated["top_k"]) == (1.0, 1.0, 0 if vllm else -1)
    assert stated["stop_token_ids"] == [3]
    # vLLM's ignore_eos leaves our stop ids alone, SGLang's ignores them as well.
    assert stated["ignore_eos"] is vllm


@pytest.mark.parametrize("limit", [{"own_limit": 4}, {"own_stop": written([5, 6, 7], 10)[3]}], ids=["length", "stop id"])
async def test_a_limit_of_the_servers_own_does_not_end_a_reply(provider: WorkerProvider, limit: dict[str, int]) -> None:
    expected = written([5, 6, 7], 10)
    for server in provider.servers:
        vars(server).update(limit)
    tokens, finish = await provider.engine.generate(PROMPT, Sampling(10))
    assert tokens.ids.tolist() == expected
    assert finish is Finish.LENGTH


# --------------------------------------------------------------------------------------------------- servers that are not there


@pytest.mark.parametrize("kind", [VLLMEngine, SGLangEngine])
async def test_a_server_that_is_down_is_named_in_one_sentence_and_nothing_stays_open(kind: type[RemoteEngine]) -> None:
    engine = kind("http://127.0.0.1:1")
    with pytest.raises(InfrastructureError, match=r"http://127\.0\.0\.1:1 does not answer .* Check the URL") as told:
        await engine.connect()
    assert "\n" not in str(told.value)
    assert engine._connections.closed


async def test_one_server_that_answers_is_enough_to_begin_with() -> None:
    async with serving(Server().app()) as url:
        engine = VLLMEngine(["http://127.0.0.1:1", url])
        await engine.connect()
        assert (engine.model, engine.context_length) == ("stub", LENGTH)
        await engine.close()


async def test_an_address_that_is_no_model_server_is_refused_and_nothing_stays_open() -> None:
    async with serving(Server().app()) as url:
        engine = VLLMEngine(f"{url}/v1")
        with pytest.raises(PolicyError, match="404"):
            await engine.connect()
        assert engine._connections.closed
    with pytest.raises(UsageError, match="write http://HOST:PORT"):
        VLLMEngine("localhost:8000")


async def test_weights_that_do_not_load_keep_the_old_version() -> None:
    server = Server()
    async with serving(server.app()) as url:
        engine = SGLangEngine(url)
        with pytest.raises(PolicyError, match="refused"):
            await engine.update_weights("nowhere", 1)
        assert (await engine.generate(PROMPT, Sampling(2))).tokens.version == 0
        await engine.close()
    with pytest.raises(UsageError, match="at least one"):
        VLLMEngine([])


@pytest.mark.parametrize("seeded", [True, False])
async def test_a_seed_is_sent_only_on_request_and_moves_on_with_the_parts(seeded: bool) -> None:
    seeds: list[int | None] = []

    class Noting(VLLMEngine):
        async def _sample(self, replica: ServerReplica, prompt: list[int], sampling: Sampling) -> SampledPart:
            seeds.append(sampling.seed)
            return SampledPart([4, 4], [-1.0, -1.0], None if len(seeds) == 1 else Finish.STOP)

    engine = Noting("http://unused", seeded=seeded)
    await engine.generate(PROMPT, Sampling(8, seed=70))
    assert seeds == ([70, 72] if seeded else [None, None])
