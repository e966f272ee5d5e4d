import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.engines.servers import LENGTH, Server, next_token, serving

from palestra.core import Sampling, Session
from palestra.encoding import ints
from palestra.engines import remote
from palestra.engines.remote import RemoteEngine
from palestra.engines.sglang import SGLangEngine
from palestra.engines.vllm import VLLMEngine
from palestra.errors import InfrastructureError, PolicyError, UsageError
from palestra.trajectory import Finish

PROMPT = ints([5, 6, 7])


class Fleet:
    """Two servers and an engine on them."""

    def __init__(self, engine: RemoteEngine, servers: list[Server]) -> None:
        self.engine = engine
        self.servers = servers


@pytest.fixture(params=[VLLMEngine, SGLangEngine])
async def fleet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    monkeypatch.setattr(remote, "LONGEST_WAIT", 0.01)
    servers = [Server(), Server()]
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(serving(server.app())) for server in servers]
        engine = request.param(urls)
        await engine.connect()
        yield Fleet(engine, servers)
        await engine.close()


def written(prompt: list[int], n: int, weights: str = "base") -> list[int]:
    context = list(prompt)
    for _ in range(n):
        context.append(next_token(context, weights))
    return context[len(prompt) :]


async def test_ids_go_in_and_come_out(fleet: Fleet) -> None:
    assert (fleet.engine.context_length, fleet.engine.model) == (LENGTH, "stub")
    tokens, finish = await fleet.engine.generate(PROMPT, Sampling(5))
    assert tokens.prompt is PROMPT
    assert tokens.ids.tolist() == written([5, 6, 7], 5)
    assert tokens.logprobs.tolist() == [-0.5] * 5
    assert finish is Finish.LENGTH
    stop = int(tokens.ids[2])
    tokens, finish = await fleet.engine.generate(PROMPT, Sampling(5, stop_ids=(stop,)))
    assert finish is Finish.STOP
    assert int(tokens.ids[-1]) == stop


@pytest.mark.parametrize("faults", [["500"], ["cut"], ["429", "500", "cut"]], ids="-".join)
async def test_a_failed_call_is_made_again_and_the_turn_is_there_once(fleet: Fleet, faults: list[str]) -> None:
    for server in fleet.servers:
        server.faults.extend(faults)
    tokens, _ = await fleet.engine.generate(PROMPT, Sampling(5))
    assert tokens.ids.tolist() == written([5, 6, 7], 5)


async def test_a_call_that_keeps_failing_is_the_infrastructures_fault(fleet: Fleet) -> None:
    for server in fleet.servers:
        server.faults.extend(["500"] * 20)
    with pytest.raises(InfrastructureError, match="6 calls failed"):
        await fleet.engine.generate(PROMPT, Sampling(5))


async def test_a_refused_call_is_not_repeated(fleet: Fleet) -> None:
    for server in fleet.servers:
        server.faults.append("400")
    with pytest.raises(PolicyError, match="refused the call"):
        await fleet.engine.generate(PROMPT, Sampling(5))
    assert sum(len(server.faults) for server in fleet.servers) == 1


async def test_calls_spread_and_a_session_stays(fleet: Fleet) -> None:
    for server in fleet.servers:
        server.pace = 0.001
    sessions = [Session() for _ in range(16)]
    for _ in range(2):
        await asyncio.gather(*(fleet.engine.generate(PROMPT, Sampling(5), session) for session in sessions))
    assert [server.calls for server in fleet.servers] == [16, 16]
    await asyncio.gather(*(fleet.engine.generate(PROMPT, Sampling(5), sessions[0]) for _ in range(4)))
    assert sorted(server.calls for server in fleet.servers) == [16, 20]


async def test_a_session_leaves_a_replica_that_is_much_busier(fleet: Fleet) -> None:
    for server in fleet.servers:
        server.pace = 0.001
    session = Session()
    await asyncio.gather(*(fleet.engine.generate(PROMPT, Sampling(3), session) for _ in range(40)))
    assert min(server.calls for server in fleet.servers) >= 10


async def test_new_weights_in_mid_completion_lose_nothing_and_every_token_has_its_version(fleet: Fleet) -> None:
    for server in fleet.servers:
        server.pace = 0.001
    calls = [asyncio.create_task(fleet.engine.generate(ints([5, 6, 7 + k]), Sampling(60))) for k in range(8)]
    while min(server.written for server in fleet.servers) < 20:
        await asyncio.sleep(0.001)
    await fleet.engine.update_weights("new", 1)
    for k, call in enumerate(calls):
        tokens, finish = await call
        assert len(tokens.ids) == 60
        assert finish is Finish.LENGTH
        ((cut, version),) = tokens.updates
        assert (tokens.version, version) == (0, 1)
        before = written([5, 6, 7 + k], cut)
        after = written([5, 6, 7 + k, *before], 60 - cut, "new")
        assert tokens.ids.tolist() == before + after
    assert (await fleet.engine.generate(PROMPT, Sampling(2))).tokens.version == 1


async def test_a_pause_holds_new_calls_back(fleet: Fleet) -> None:
    await fleet.engine.pause()
    call = asyncio.create_task(fleet.engine.generate(PROMPT, Sampling(2)))
    for _ in range(50):
        await asyncio.sleep(0)
    assert sum(server.calls for server in fleet.servers) == 0
    await fleet.engine.update_weights("new", 3)
    assert not call.done()
    await fleet.engine.resume()
    assert (await call).tokens.version == 3


async def test_a_part_that_may_be_of_either_version_is_sampled_again(fleet: Fleet) -> None:
    fleet.servers[0].pace = fleet.servers[1].pace = 0.002
    call = asyncio.create_task(fleet.engine.generate(PROMPT, Sampling(10)))
    while not any(server.written for server in fleet.servers):
        await asyncio.sleep(0.001)
    for replica, server in zip(fleet.engine.replicas, fleet.servers, strict=True):
        replica.version, server.weights = 1, "new"  # as if the call had reached the server only after the change
    fleet.engine.version = 1
    tokens, _ = await call
    assert tokens.version == 1
    assert tokens.ids.tolist() == written([5, 6, 7], 10, "new")


async def test_a_replica_that_was_away_gets_the_current_weights_before_any_call(fleet: Fleet) -> None:
    await fleet.engine.update_weights("new", 1)
    lost = fleet.servers[0]
    lost.weights = "base"  # restarted
    fleet.engine._suspect(fleet.engine.replicas[0])
    answers = await asyncio.gather(*(fleet.engine.generate(PROMPT, Sampling(3)) for _ in range(8)))
    assert {tuple(answer.tokens.ids.tolist()) for answer in answers} == {tuple(written([5, 6, 7], 3, "new"))}
    while not fleet.engine.replicas[0].healthy:
        await asyncio.sleep(0.005)
    assert lost.weights == "new"


@pytest.mark.parametrize("tamper", ["prompt", "logprobs", "text"])
async def test_an_answer_that_is_not_what_was_asked_for_is_refused(fleet: Fleet, tamper: str) -> None:
    if isinstance(fleet.engine, SGLangEngine) and tamper != "prompt":
        return
    for server in fleet.servers:
        server.tamper = tamper
    with pytest.raises(PolicyError):
        await fleet.engine.generate(PROMPT, Sampling(5))


async def test_untempered_logprobs_are_refused_at_another_temperature() -> None:
    server = Server()
    async with serving(server.app()) as url:
        engine = VLLMEngine(url)
        await engine.generate(PROMPT, Sampling(2, temperature=0.7))
        await engine.close()
        server.processed = False
        engine = VLLMEngine(url)
        await engine.generate(PROMPT, Sampling(2, temperature=1.0))
        with pytest.raises(UsageError, match="processed_logprobs"):
            await engine.generate(PROMPT, Sampling(2, temperature=0.7))
        await engine.close()


async def test_weights_that_do_not_load_keep_the_old_version() -> None:
    server = Server()
    async with serving(server.app()) as url:
        engine = SGLangEngine(url)
        with pytest.raises(PolicyError, match="did not load"):
            await engine.update_weights("nowhere", 1)
        assert (await engine.generate(PROMPT, Sampling(2))).tokens.version == 0
        await engine.close()
    with pytest.raises(UsageError, match="at least one"):
        VLLMEngine([])


@pytest.mark.parametrize("seeded", [True, False])
async def test_a_seed_is_sent_only_on_request_and_moves_on_with_the_parts(seeded: bool) -> None:
    seeds: list[int | None] = []

    class Noting(VLLMEngine):
        async def _sample(self, replica: remote.Replica, prompt: list[int], sampling: Sampling) -> remote.Part:
            seeds.append(sampling.seed)
            return remote.Part([4, 4], [-1.0, -1.0], None if len(seeds) == 1 else Finish.STOP)

    engine = Noting("http://unused", seeded=seeded)
    await engine.generate(PROMPT, Sampling(8, seed=70))
    assert seeds == ([70, 72] if seeded else [None, None])
