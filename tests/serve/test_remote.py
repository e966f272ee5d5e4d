"""A served environment equals the local one: results, errors, and behavior on a bad network."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

import palestra
from palestra import Task
from palestra.errors import EnvError, EpisodeOver, InfrastructureError, UnknownEnv, Unsupported, UsageError
from palestra.serve import EnvServer, RemoteEnv, ServerLimits
from palestra.serve.tokens import HOST_VARIABLE, TOKEN_VARIABLE, new_token
from palestra.testing.faults import FaultKind, FaultProxy
from palestra.trajectory import StopReason, Trajectory
from tests.serve import faulted
from tests.serve.tally import REFERENCE, Waiting, reward_of

TOKEN = new_token()
MOODY = "tests.serve.tally:Moody"
IN_PLACE = "tests.serve.tally:MoodyInPlace"
WAITING = "tests.serve.tally:Waiting"
ISOLATED = "tests.serve.tally:IsolatedTally"
IDS = ["game:*", REFERENCE, MOODY, IN_PLACE, WAITING, ISOLATED]


@pytest.fixture
async def server() -> AsyncIterator[EnvServer]:
    async with EnvServer(IDS, TOKEN, limits=ServerLimits(heartbeat=0.2, ttl=5.0)) as running:
        yield running


@pytest.fixture
def token_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(HOST_VARIABLE, "127.0.0.1")


def remote(server: EnvServer, id: str, **options: Any) -> RemoteEnv:
    return RemoteEnv(f"{server.url}#{id}", token=TOKEN, **options)


def _always(action: str, observation: str) -> str:
    return action


async def played(envs: str, policy: str, n: int) -> list[Trajectory]:
    return [one async for one in palestra.rollout(envs, policy, n=n, seed=7, concurrency=16)]


# ------------------------------------------------------------------------------------------------------------ the same results


@pytest.mark.parametrize("policy", ["random", "oracle"])
@pytest.mark.parametrize("id", ["game:GuessTheNumber-v0-easy", "game:Mastermind-v0-easy", "game:TowerofHanoi-v0-easy"])
@pytest.mark.usefixtures("token_at_hand")
async def test_served_and_local_runs_have_the_same_digests(server: EnvServer, id: str, policy: str) -> None:
    there = await played(f"remote:{server.url}#{id}", policy, 20)
    here = await played(id, policy, 20)
    assert sorted(one.digest() for one in there) == sorted(one.digest() for one in here)
    assert not any(one.failures for one in there)


@pytest.mark.usefixtures("token_at_hand")
async def test_failures_are_reported_as_by_a_local_environment(server: EnvServer) -> None:
    for action in ("raise", "nan"):
        lists = [
            [one async for one in palestra.rollout(envs, partial(_always, action), n=2, seed=1)]
            for envs in (f"remote:{server.url}#{IN_PLACE}", IN_PLACE)
        ]
        there, here = ({one.digest() for one in trajectories} for trajectories in lists)
        assert there == here
        assert all(one.stop is StopReason.ERROR for one in lists[0])


def test_make_hands_over_the_plain_blocking_object() -> None:
    async def serve_until(done: asyncio.Event, url: "asyncio.Future[str]") -> None:
        async with EnvServer("game:*", TOKEN) as running:
            url.set_result(running.url)
            await done.wait()

    def play(url: str) -> tuple[list[Any], list[Any]]:
        both = []
        for id in (f"remote:{url}#game:GuessTheNumber-v0-easy", "game:GuessTheNumber-v0-easy"):
            options: dict[str, Any] = {"token": TOKEN} if id.startswith("remote") else {}
            with palestra.make(id, **options) as env:
                shown: list[Any] = [env.reset(seed=3)]
                env.seed_actions(5)
                shown += [env.step(env.sample_random_action()), env.step(env.oracle()), env.task]
                both.append(shown)
        return both[0], both[1]

    async def main() -> tuple[list[Any], list[Any]]:
        done, url = asyncio.Event(), asyncio.get_running_loop().create_future()
        serving = asyncio.create_task(serve_until(done, url))
        result = await asyncio.to_thread(play, await url)
        done.set()
        await serving
        return result

    there, here = asyncio.run(main())
    assert there == here


async def test_a_session_plays_many_episodes_each_with_a_fresh_environment(server: EnvServer) -> None:
    env = remote(server, REFERENCE)
    for seed in range(3):
        assert (await env.reset(task=Task(REFERENCE, seed)))[0] == f"{seed}:0:"
        assert (await env.step("x")).info == {"turn": 1}
    assert server.sessions.metrics.opened == 1
    await env.close()
    assert len(server.sessions) == 0


# ------------------------------------------------------------------------------------------------------------ what is refused


async def test_without_the_token_the_server_answers_nothing(server: EnvServer) -> None:
    env = RemoteEnv(f"{server.url}#{REFERENCE}", token=new_token())
    with pytest.raises(UsageError, match="refused the token"):
        await env.reset(seed=0)
    assert len(server.sessions) == 0


async def test_an_id_that_is_not_served_is_unknown_even_if_it_exists(server: EnvServer) -> None:
    with pytest.raises(UnknownEnv, match="does not serve"):
        await remote(server, "tests.serve.tally:told").reset(seed=0)


@pytest.mark.parametrize("address", ["", "http://host", "host#x", "ftp://host#x", "http://host#"])
def test_an_address_must_name_a_place_and_an_id(address: str) -> None:
    with pytest.raises(UsageError, match="remote:http://HOST:PORT#ID"):
        palestra.make_async(f"remote:{address}", token=TOKEN)


def test_a_client_needs_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    with pytest.raises(UsageError, match=TOKEN_VARIABLE):
        palestra.make_async("remote:http://host:1#game:X")


OWN = [
    ("host:1", "http://host:1"),
    ("HOST:1", "http://Host:1"),
    ("host", "https://host:99"),
    ("other:2, host:1", "ws://host:1"),
]
OWN += [("host:443", "https://host"), ("host:80", "http://host/"), ("[::1]:5", "http://[::1]:5")]
FOREIGN = [("", "http://host:1"), ("host:1", "http://host:2"), ("host:1", "http://evil:1"), ("host", "http://host.evil:1")]
FOREIGN += [("host", "http://ahost"), ("host:80", "https://host"), (",", "http://host:1")]


@pytest.mark.parametrize(("hosts", "url"), OWN)
def test_the_token_goes_to_its_host(monkeypatch: pytest.MonkeyPatch, hosts: str, url: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(HOST_VARIABLE, hosts)
    palestra.make_async(f"remote:{url}#game:X")


@pytest.mark.parametrize(("hosts", "url"), FOREIGN)
def test_the_token_goes_nowhere_else(monkeypatch: pytest.MonkeyPatch, hosts: str, url: str) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    monkeypatch.setenv(HOST_VARIABLE, hosts)
    with pytest.raises(UsageError, match=f"was not sent to .*export {HOST_VARIABLE}=") as refused:
        palestra.make_async(f"remote:{url}#game:X")
    assert TOKEN not in str(refused.value)
    palestra.make_async(f"remote:{url}#game:X", token=TOKEN)  # who names it in code means it


@pytest.mark.parametrize(
    "url", ["http://host@evil", "http://user:secret@host", "http://ho\nst", "http://a b", "http://:1", "http://h:x"]
)
def test_an_address_that_readers_may_take_differently_is_refused(url: str) -> None:
    with pytest.raises(UsageError) as refused:
        palestra.make_async(f"remote:{url}#game:X", token=TOKEN)
    assert "secret" not in str(refused.value)


async def test_usage_errors_keep_their_kind(server: EnvServer) -> None:
    env = remote(server, REFERENCE)
    with pytest.raises(EpisodeOver):
        await env.step("too early")
    await env.reset(seed=0)
    with pytest.raises(Unsupported, match="no oracle"):
        await env.oracle()
    assert (await env.step("end")).terminated
    with pytest.raises(EpisodeOver):
        await env.step("too late")
    await env.close()


async def test_both_sides_keep_the_agreed_size(server: EnvServer) -> None:
    env = remote(server, IN_PLACE, max_message=10_000)
    await env.reset(seed=0)
    with pytest.raises(UsageError, match="at most 10000 can be sent"):
        await env.step("x" * 20_000)
    with pytest.raises(EnvError, match="at most 10000 can be sent"):
        await env.step("large")
    assert (await env.step("x")).info == {"turn": 2}, "the session is as good as before"
    assert (await env.step("live")).info == {"object": {"$unserialisable": "builtins.object"}}, "as in a local rollout"
    await env.close()


@pytest.mark.slow
async def test_a_full_server_asks_for_patience() -> None:
    async with EnvServer(REFERENCE, TOKEN, limits=ServerLimits(max_sessions=1)) as server:
        first, second = remote(server, REFERENCE), remote(server, REFERENCE)
        await first.reset(seed=0)
        waiting = asyncio.create_task(second.reset(task=Task(REFERENCE, 9)))
        done, _ = await asyncio.wait([waiting], timeout=0.3)
        assert not done
        await first.close()
        assert (await waiting)[0] == "9:0:"
        await second.close()


# ------------------------------------------------------------------------------------------------------------ what goes wrong


@pytest.mark.gate
@pytest.mark.slow
async def test_a_hang_costs_one_call_and_one_episode(server: EnvServer) -> None:
    hung, other = remote(server, MOODY), remote(server, MOODY)
    await hung.reset(seed=1)
    hung._deadline = 0.5
    await other.reset(seed=2)
    hanging = asyncio.create_task(hung.step("hang"))
    assert (await other.step("x")).reward == reward_of(2, 1, "x")
    with pytest.raises(EnvError, match=r"deadline of 0\.\d+ s passed") as caught:
        await hanging
    assert caught.value.kind == "Deadline"
    with pytest.raises(EpisodeOver):
        await hung.step("x")
    hung._deadline = 30.0
    await hung.reset(seed=3)
    assert (await hung.step("x")).reward == reward_of(3, 1, "x")
    await hung.close()
    await other.close()


async def test_a_crash_is_infrastructure_and_costs_one_session(server: EnvServer) -> None:
    crashed, other = remote(server, MOODY), remote(server, MOODY)
    await crashed.reset(seed=1)
    await other.reset(seed=2)
    with pytest.raises(InfrastructureError) as caught:
        await crashed.step("die")
    assert caught.value.kind == "WorkerDied"
    assert (await other.step("x")).reward == reward_of(2, 1, "x")
    await crashed.close()
    await other.close()


async def test_tracebacks_stay_on_the_server(server: EnvServer) -> None:
    env = remote(server, IN_PLACE)
    await env.reset(seed=0)
    with pytest.raises(EnvError) as caught:
        await env.step("raise")
    assert caught.value.kind == "KeyError"
    assert caught.value.detail == ""
    await env.close()


async def test_abandoned_calls_are_ended_by_close(server: EnvServer) -> None:
    Waiting.closed = 0
    env = remote(server, WAITING)
    await env.reset(seed=0)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await env.step("3600")
    await env.close()
    assert Waiting.closed == 1
    assert len(server.sessions) == 0


@pytest.mark.slow
async def test_a_slow_call_outlives_many_heartbeats(server: EnvServer) -> None:
    env = remote(server, WAITING)
    await env.reset(seed=0)
    assert (await env.step("1.2")).observation == "1"
    assert server.sessions.metrics.calls["step"] == 1
    await env.close()


# ------------------------------------------------------------------------------------------------------------ lease and resume


@pytest.mark.slow
async def test_a_thinking_player_keeps_the_session() -> None:
    async with EnvServer(REFERENCE, TOKEN, limits=ServerLimits(heartbeat=0.1, ttl=1.5)) as server:
        env = remote(server, REFERENCE)
        await env.reset(task=Task(REFERENCE, 4))
        (session,) = server.sessions._table.values()
        opened = session.seen
        async with asyncio.timeout(120):
            while session.seen - opened < 1.2 * server.sessions.limits.ttl:  # heartbeats renew the lease
                await asyncio.sleep(0.01)
        assert (await env.step("x")).reward == reward_of(4, 1, "x")
        await env.close()


async def test_a_silent_session_is_closed_with_its_environment() -> None:
    Waiting.closed = 0
    async with EnvServer(WAITING, TOKEN, limits=ServerLimits(heartbeat=60.0, ttl=0.3)) as server:
        env = remote(server, WAITING, deadline=20.0)
        await env.reset(seed=0)
        async with asyncio.timeout(60):
            while len(server.sessions):
                await asyncio.sleep(0.02)
        assert server.sessions.metrics.expired == 1
        with pytest.raises(InfrastructureError, match="no such session"):
            await env.step("0")
        await env.reset(seed=0)  # a new episode needs nothing of the old session
        await env.close()
    assert Waiting.closed == 2


async def test_a_cut_connection_is_resumed_in_mid_episode(server: EnvServer) -> None:
    env = remote(server, REFERENCE)
    await env.reset(task=Task(REFERENCE, 6))
    for turn in range(1, 6):
        assert env._link is not None
        env._link._socket.transport.abort()
        assert (await env.step("x")).reward == reward_of(6, turn, "x")
    assert server.sessions.metrics.resumed >= 5
    assert server.sessions.metrics.opened == 1
    await env.close()


async def test_a_restarted_server_costs_the_episode_and_not_the_client() -> None:
    async with EnvServer(REFERENCE, TOKEN) as server:
        port = int(server.url.rpartition(":")[2])
        env = remote(server, REFERENCE, deadline=60.0)
        await env.reset(seed=0)
    async with EnvServer(REFERENCE, TOKEN, port=port):
        with pytest.raises(InfrastructureError, match="no such session"):
            await env.step("x")
        assert (await env.reset(task=Task(REFERENCE, 2)))[0] == "2:0:"
        await env.close()


@pytest.mark.gate
@pytest.mark.slow
async def test_draining_lets_episodes_end_and_starts_no_others(server: EnvServer) -> None:
    env = remote(server, REFERENCE)
    await env.reset(seed=0)
    draining = asyncio.create_task(server.drain())
    await asyncio.sleep(0)
    with pytest.raises(InfrastructureError, match="about to stop"):
        await remote(server, REFERENCE, deadline=3.0).reset(seed=0)
    assert (await env.step("x")).info == {"turn": 1}
    assert not draining.done()
    await env.step("end")
    await asyncio.wait_for(draining, 60)
    await env.close()


# ---------------------------------------------------------------------------------------------------------------------- chaos


@pytest.mark.slow
async def test_nothing_is_lost_or_counted_twice_over_a_bad_network() -> None:
    outcome = await faulted.run(faults=100, players=10, seed=1)
    assert (outcome.wrong, outcome.miscounted, outcome.failed) == (0, 0, 0)
    assert sum(outcome.counts.values()) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(FaultKind))
async def test_each_fault_alone(kind: FaultKind) -> None:
    rate = 0.02 if kind in (FaultKind.DROP, FaultKind.HALF_OPEN) else 0.3
    outcome = await faulted.run(faults=100, players=20, rates={kind: rate})
    assert (outcome.wrong, outcome.miscounted, outcome.failed) == (0, 0, 0)
    assert set(outcome.counts) == {kind}


def test_faults_are_drawn_from_the_seed() -> None:
    first, second = FaultProxy("x", 1, seed=1), FaultProxy("x", 1, seed=1)
    assert [first.draw() for _ in range(50)] == [second.draw() for _ in range(50)]
    proxy = FaultProxy("x", 1, seed=0, rates={FaultKind.CUT: 0.5})
    share = sum(proxy.draw() is FaultKind.CUT for _ in range(1000)) / 1000
    assert 0.4 < share < 0.6


@pytest.mark.slow
async def test_calls_under_way_are_counted_and_bounded() -> None:
    async with EnvServer(WAITING, TOKEN, limits=ServerLimits(max_waiting=1)) as server:
        first, second = remote(server, WAITING), remote(server, WAITING)
        await first.reset(seed=0)
        await second.reset(seed=0)
        steps = await asyncio.gather(first.step("0.2"), second.step("0.2"))
        assert [step.observation for step in steps] == ["1", "1"]
        assert server.sessions.metrics.faults["busy"] >= 1
        await first.close()
        await second.close()


async def test_a_call_that_is_given_up_is_no_longer_counted() -> None:
    async with EnvServer(WAITING, TOKEN, limits=ServerLimits(max_waiting=1)) as server:
        first = remote(server, WAITING)
        await first.reset(seed=0)
        waiting = asyncio.create_task(first.step("3600"))
        async with asyncio.timeout(60):
            while not server.sessions._waiting.held:
                await asyncio.sleep(0.01)
        waiting.cancel()
        await asyncio.wait([waiting])
        await first.close()
        assert server.sessions._waiting.held == 0
