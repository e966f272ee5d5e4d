"""The rules of leases, without Ray: workers in this process that die when a test says so."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra import Env, Step, StopReason, Task, Trajectory
from palestra.cli.cluster import cluster_of, dispatcher_of
from palestra.cluster import ClusterConfig, Dispatcher, LocalProvider, Lost, Pool, dispatcher, jobs, load_cluster_config
from palestra.cluster.providers import LocalHandle, WorkerHandle
from palestra.cluster.rays import RayProvider
from palestra.cluster.worker import JobOrders, Opened, RolloutWorker, StaleSession
from palestra.core import Policy
from palestra.errors import Boundary, UnknownEnv, UsageError
from palestra.foundation.encoding import encode_msgpack
from palestra.policies import as_policy
from palestra.registry import register, unregister
from palestra.rollouts import EpisodeKey, RolloutOptions, collect
from tests.cluster.chaos import digest
from tests.leftovers import nothing_left_here

GUESS = "game:GuessTheNumber-v0-easy"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(dispatcher, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr(dispatcher, "CENSUS", 0.02)
    monkeypatch.setattr(dispatcher, "HEARTBEAT", 0.1)


class MortalHandle(LocalHandle):
    """Dies at calls that ``dies`` chooses: before the worker hears of it, or after, when the answer is lost."""

    def __init__(self, pool: Pool, dies: Callable[[], str]) -> None:
        super().__init__(pool)
        self._dies = dies

    async def open(self) -> Opened:
        if self._dies() == "before":
            raise Lost("gone")
        return await super().open()

    async def exchange(self, session: str, orders: JobOrders) -> bytes:
        outcome = self._dies()
        if outcome == "before":
            await self.replace()
            raise Lost("gone")
        if outcome == "restart":  # the dispatcher does not notice: the call reaches a new worker
            await self.replace()
        answer = await super().exchange(session, orders)
        if outcome == "after":
            raise Lost("the answer was lost")
        return answer


class OurProvider(LocalProvider):
    """Starts workers of our own."""

    def __init__(self, handle: Callable[[Pool], LocalHandle], size: int = 3) -> None:
        super().__init__()
        self.handle, self.size = handle, size

    async def room(self, pool: Pool) -> int:
        return self.size

    def start(self, pool: Pool) -> WorkerHandle:
        handle = self.handle(pool)
        self._stack.push_async_callback(handle.close)
        return handle


def mortal(dies: Callable[[], str], size: int = 3) -> OurProvider:
    return OurProvider(lambda pool: MortalHandle(pool, dies), size)


def outcomes(seed: int, rate: float) -> Callable[[], str]:
    rng = np.random.default_rng(seed)
    return lambda: str(rng.choice(["before", "after", "restart"])) if rng.random() < rate else ""


class Books:
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def issue(self, rollout: str, task: str = "") -> None:
        self.events.append(("issue", rollout))

    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None:
        self.events.append(("lease", rollout))

    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False) -> None:
        self.events.append(("again" if again else "fail", rollout))

    def finish(self, rollout: str) -> None:
        self.events.append(("finish", rollout))

    def count(self, kind: str) -> Counter[str]:
        return Counter(name for event, name in self.events if event == kind)


async def test_a_dispatcher_in_this_process_plays_the_same_episodes() -> None:
    expected = collect([GUESS, "game:Mastermind-v0-easy"], "random", n=60, group_size=2, seed=7, progress=False)
    config = ClusterConfig(pools=(Pool(match="game:Guess*", workers=2, concurrency=4), Pool(concurrency=3)))
    async with nothing_left_here(), Dispatcher(LocalProvider(), config) as workers:
        envs = [GUESS, "game:Mastermind-v0-easy"]
        played = [t async for t in workers.rollout(envs, "random", RolloutOptions(n=60, group_size=2, seed=7))]
        assert len(workers.workers) == 3
    assert digest(played) == digest(expected)


@pytest.mark.gate
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.0, 0.1, 0.4]),
    size=st.integers(1, 4),
    concurrency=st.sampled_from([1, 3, 16]),
    wear=st.sampled_from([0, 3]),
)
@pytest.mark.slow
async def test_nothing_is_lost_or_counted_twice(seed: int, rate: float, size: int, concurrency: int, wear: int) -> None:
    expected = collect(GUESS, "random", n=20, group_size=2, seed=1, progress=False)
    books = Books()
    config = ClusterConfig(pools=(Pool(concurrency=concurrency, episodes_per_worker=wear),))
    async with Dispatcher(mortal(outcomes(seed, rate), size), config) as workers:
        played = [
            t
            async for t in workers.rollout(
                GUESS, "random", RolloutOptions(n=20, group_size=2, seed=1, concurrency=10), book=books
            )
        ]
    names = Counter(f"{group}.{member}" for group in range(20) for member in range(2))
    assert Counter(f"{one.group}.{one.member}" for one in played) == names == books.count("issue")
    assert books.count("finish") + books.count("fail") == names
    assert books.count("lease") == names + books.count("again")
    sound = [one for one in played if not one.stop.failed]
    fine = {(one.group, one.member) for one in sound}
    assert digest(sound) == digest([one for one in expected if (one.group, one.member) in fine])
    assert rate == 0.4 or len(sound) == 40


class Deadly(Env):
    """Tells the provider that its worker is to die, if the task's seed is 13."""

    playing: ClassVar[set[int]] = set()

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        Deadly.playing.add(self.task.seed)
        return "", {}

    def step(self, action: str) -> Step:
        return Step("", 1.0, self.task.seed != 13, False, {})

    def close(self) -> None:
        Deadly.playing.discard(self.task.seed)


@pytest.mark.gate
@pytest.mark.slow
async def test_an_episode_that_kills_its_workers_is_given_up_and_harms_nobody_else() -> None:
    def dies() -> str:
        return "after" if 13 in Deadly.playing else ""

    async def patient(text: str) -> str:
        await asyncio.sleep(0.01)
        return ""

    books = Books()
    tasks = [Task(f"{__name__}:Deadly", seed) for seed in range(30)]
    async with Dispatcher(mortal(dies, 1), ClusterConfig(pools=(Pool(concurrency=8),))) as workers:
        played = {t.task.seed: t async for t in workers.rollout(tasks, patient, RolloutOptions(), book=books)}
    assert len(played) == 30
    assert [seed for seed, one in played.items() if one.stop is StopReason.ERROR] == [13]
    assert played[13].failures[0].boundary is Boundary.INFRASTRUCTURE
    assert played[13].reward is None
    assert books.count("fail") == Counter({"13.0": 1})
    # Beside it others were lost too, but nobody who had died often was ever played together with anybody.
    losses: Counter[str] = Counter()
    held: set[str] = set()
    for kind, name in books.events:
        if kind == "lease":
            assert not any(losses[one] >= dispatcher.ALONE_AFTER for one in held)
            assert losses[name] < dispatcher.ALONE_AFTER or not held
            held.add(name)
        elif kind != "issue":
            held.discard(name)
            losses[name] += kind == "again"
    assert losses["13.0"] == dispatcher.GIVEN_UP_AFTER - 1


async def test_a_slow_consumer_is_not_overrun() -> None:
    begun = 0

    async def policy(text: str) -> str:
        nonlocal begun
        begun += 1
        return "\\boxed{1}"

    async with Dispatcher(LocalProvider()) as workers:
        async for _ in workers.rollout(GUESS, policy, RolloutOptions(n=1000, max_turns=1, concurrency=10)):
            for _ in range(20):
                await asyncio.sleep(0.001)
            break
    assert begun <= 20


@pytest.mark.slow
async def test_leaving_early_frees_everything_and_the_dispatcher_goes_on() -> None:
    async with nothing_left_here(), Dispatcher(LocalProvider()) as workers:
        stream = workers.rollout("tests.rollouts.faulty:Slow", lambda text: "3600", RolloutOptions(n=4))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(stream), 1.0)
        played = [t async for t in workers.rollout(GUESS, "random", RolloutOptions(n=5))]
        assert len(played) == 5


async def test_an_idle_worker_ends_the_jobs_that_have_ended() -> None:
    async with Dispatcher(LocalProvider()) as workers:
        assert len([t async for t in workers.rollout(GUESS, "random", RolloutOptions(n=3))]) == 3
        async with asyncio.timeout(10):
            while any(worker.jobs for worker in workers._sessions):
                await asyncio.sleep(0.001)


async def test_jobs_share_the_workers() -> None:
    async with Dispatcher(mortal(lambda: "", 2)) as workers:

        async def one(seed: int) -> list[Trajectory]:
            return [t async for t in workers.rollout(GUESS, "random", RolloutOptions(n=30, seed=seed))]

        many = await asyncio.gather(*(one(seed) for seed in range(4)))
    for seed, played in enumerate(many):
        assert digest(played) == digest(collect(GUESS, "random", n=30, seed=seed, progress=False))


@pytest.mark.slow
async def test_a_silent_worker_is_replaced() -> None:
    class Silent(LocalHandle):
        silent = True

        async def exchange(self, session: str, orders: JobOrders) -> bytes:
            if Silent.silent:
                await asyncio.sleep(3600)
            return await super().exchange(session, orders)

        async def replace(self) -> None:
            Silent.silent = False
            await super().replace()

    async with Dispatcher(OurProvider(Silent, 1), ClusterConfig(pools=(Pool(patience=1.0),))) as workers:
        assert len([t async for t in workers.rollout(GUESS, "random", RolloutOptions(n=5))]) == 5
        assert workers.deaths == 1


async def test_worn_out_workers_are_replaced() -> None:
    async with Dispatcher(LocalProvider(), ClusterConfig(pools=(Pool(episodes_per_worker=5, concurrency=2),))) as workers:
        assert len([t async for t in workers.rollout(GUESS, "random", RolloutOptions(n=23))]) == 23
        assert len(workers.workers) >= 5
        assert workers.deaths == 0


async def test_what_a_caller_did_wrong_is_told() -> None:
    def tasks() -> Iterator[Task]:
        yield Task(GUESS, 1)
        raise ValueError("no more")

    async with Dispatcher(LocalProvider()) as workers:
        stream = workers.rollout(tasks(), "random", RolloutOptions())
        assert (await anext(stream)).task.seed == 1
        with pytest.raises(ValueError, match="no more"):
            await anext(stream)
        with pytest.raises(UnknownEnv):
            await anext(workers.rollout([Task("game:Nonesuch-v0", 1)], "random", RolloutOptions()))
        with pytest.raises(UsageError, match="no policy"):
            await anext(workers.rollout(GUESS, "nobody", RolloutOptions(n=1)))
        with pytest.raises(UsageError, match="cannot choose the policies of players"):
            await anext(workers.rollout(GUESS, "random", RolloutOptions(n=1, seating=Random())))


class Random:
    """Seats the same policy everywhere."""

    def policy_of(self, key: EpisodeKey, player: str) -> Policy:
        return as_policy("random")


async def test_a_worker_is_told_what_only_the_dispatcher_has_registered() -> None:
    register("mine:Dice-v0", "tests.test_core:Dice")
    async with Dispatcher(LocalProvider()) as workers:
        stream = workers.rollout([Task("mine:Dice-v0", seed) for seed in range(5)], lambda text: "x", RolloutOptions())
        first = await anext(stream)  # now the worker has heard of it
        unregister("mine:Dice-v0")
        played = [first, *[t async for t in stream]]
    assert not any(one.failures for one in played)


async def test_an_environment_without_a_pool_fails_its_own_job_and_no_other() -> None:
    config = ClusterConfig(pools=(Pool(match="game:Guess*", concurrency=2),))
    wrong = [Task(GUESS, 1), Task(GUESS, 2), Task("game:Mastermind-v0-easy", 3)]
    books, other_books = Books(), Books()
    async with asyncio.timeout(30), Dispatcher(LocalProvider(), config) as workers:
        slow = workers.rollout(wrong, "random", RolloutOptions(concurrency=2), book=books)
        first = await anext(slow)  # its consumer is slow: others draw its next task
        options = RolloutOptions(n=60, concurrency=4)
        other = [one async for one in workers.rollout(GUESS, "random", options, book=other_books)]
        assert len(other) == 60
        second = await anext(slow)
        with pytest.raises(UsageError, match='no pool plays "game:Mastermind-v0-easy"'):
            await anext(slow)
        assert {first.task.seed, second.task.seed} == {1, 2}
        assert len([one async for one in workers.rollout(GUESS, "random", RolloutOptions(n=5))]) == 5
    for book, issued in ((books, 2), (other_books, 60)):
        assert len(book.count("issue")) == issued
        assert book.count("issue") == book.count("finish") + book.count("fail")


async def test_an_old_session_is_refused() -> None:
    worker = RolloutWorker(4)
    old = await worker.open()
    assert await worker.exchange(old.session, JobOrders()) == encode_msgpack([])
    new = await worker.open()
    with pytest.raises(StaleSession):
        await worker.exchange(old.session, JobOrders())
    assert await worker.exchange(new.session, JobOrders()) == encode_msgpack([])
    await worker.close()


def test_a_file_describes_the_pools_and_the_command_line_goes_over_it(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(
        'address = "10.0.0.1:6379"\n[[pools]]\nmatch = "browser:*"\ncpus = 2.0\nresources = { chromium = 1.0 }\n'
        "episodes_per_worker = 200\n[[pools]]\nconcurrency = 8\n"
    )
    config = load_cluster_config(file)
    assert config.pools[0] == Pool("browser:*", cpus=2.0, resources={"chromium": 1.0}, episodes_per_worker=200)
    changed = cluster_of("local", 3, file)
    assert (changed.address, changed.pools[0].workers, changed.pools[1].workers) == ("local", None, 3)
    assert isinstance(dispatcher_of(changed).provider, RayProvider)


@pytest.mark.parametrize("text", ["workers = 3", "pools = []", "[[pools]]\nconcurrency = 0", "not toml"])
def test_a_file_that_describes_none_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "cluster.toml").write_text(text)
    with pytest.raises(UsageError, match="does not describe a cluster"):
        load_cluster_config(tmp_path / "cluster.toml")


@pytest.mark.gate
@pytest.mark.slow
def test_importing_the_package_imports_no_ray() -> None:
    import subprocess
    import sys

    code = "import sys, palestra.cluster; assert not {'ray', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


async def test_time_without_work_does_not_lower_the_number_of_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that waited for its next rollout is still as fast as before, so its leases must not shrink."""
    now = 100.0
    monkeypatch.setattr(jobs, "monotonic", lambda: now)
    worker = jobs.WorkerSession(LocalHandle(Pool()), 0, Opened("session", 1))
    now, worker.ended = 110.0, 4000
    before = worker.ahead
    idle = asyncio.create_task(worker.idle())
    await asyncio.sleep(0)
    now = 400.0
    worker.wake.set()
    await idle
    assert worker.ahead == before == 100
