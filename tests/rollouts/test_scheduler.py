import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from palestra import AsyncEnv, Completion, Conversation, Step, StopReason, Task, Trajectory, rollout
from palestra.adapters.loop_thread import LoopThread
from palestra.errors import Boundary, InfrastructureError
from palestra.registry import register, unregister
from palestra.rollouts import collect
from palestra.rollouts.options import EpisodeLimit, RolloutOptions
from palestra.rollouts.scheduler import play_episodes
from palestra.trajectory import Content, Phase
from tests.leftovers import nothing_left, nothing_left_here
from tests.rollouts.faulty import CountCloses, DyingOnce, Pooled, Unbuildable

GUESS = "game:GuessTheNumber-v0-easy"
SLOW = "tests.rollouts.faulty:Slow"


class Waiting(AsyncEnv):
    """One turn that takes as many milliseconds as the task's seed."""

    open = 0
    most = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        Waiting.open += 1
        Waiting.most = max(Waiting.most, Waiting.open)
        return "", {}

    async def step(self, action: str) -> Step:
        await asyncio.sleep(self.task.seed / 1000)
        return Step("", 1.0, True, False, {})

    async def close(self) -> None:
        Waiting.open -= 1
        await asyncio.sleep(0)


WAITING = f"{__name__}:Waiting"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.episode"], "FIRST_PAUSE", 0.001)
    Waiting.open = Waiting.most = 0


async def test_episodes_come_in_the_order_in_which_they_end() -> None:
    tasks = [Task(WAITING, seed) for seed in (300, 1, 100, 2)]
    async with nothing_left_here():
        seeds = [t.task.seed async for t in rollout(tasks, lambda text: "x", concurrency=4)]
    assert seeds == [1, 2, 100, 300]
    assert Waiting.most == 4


async def test_no_more_than_asked_for_run_at_once_and_a_slow_consumer_is_not_overrun() -> None:
    tasks = (Task(WAITING, 1) for _ in range(40))
    taken = 0
    async for _ in rollout(tasks, lambda text: "x", concurrency=3):
        taken += 1
        await asyncio.sleep(0.004)
        assert Waiting.most <= 3
    assert taken == 40
    assert next(tasks, None) is None


async def test_a_consumer_that_stops_draws_no_more_tasks() -> None:
    drawn = 0

    def tasks() -> Iterator[Task]:
        nonlocal drawn
        while True:
            drawn += 1
            yield Task(WAITING, 0)

    stream = rollout(tasks(), lambda text: "x", concurrency=5)
    async for _ in stream:
        await asyncio.sleep(0.2)
        break
    assert drawn <= 12, "five running, five waiting to be taken, one taken"
    await stream.aclose()


async def test_tasks_that_cannot_be_drawn_any_more_end_the_run_with_what_they_raised_and_lose_nothing() -> None:
    def tasks() -> Iterator[Task]:
        for seed in range(6):
            yield Task(WAITING, seed)
        raise OSError("the file ended")

    taken: list[Trajectory] = []

    async def consume() -> None:
        async for trajectory in rollout(tasks(), lambda text: "x", concurrency=2):
            taken.append(trajectory)

    async with nothing_left_here():
        with pytest.raises(OSError, match="the file ended"):
            await consume()
    assert len(taken) == 6


class Flaky:
    """Fails for reasons of infrastructure so many times, in each episode."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.seen: dict[Task, int] = {}

    async def act(self, conversation: Conversation) -> Completion:
        tried = self.seen[conversation.task] = self.seen.get(conversation.task, 0) + 1
        if tried <= self.times:
            raise InfrastructureError(f"connection lost, {tried}")
        return Completion("x")


def test_infrastructure_is_tried_again_and_every_failure_stays_on_record() -> None:
    for played in collect([Task(WAITING, seed) for seed in range(3)], Flaky(2), retries=2):
        assert (played.stop, played.reward, played.attempt) == (StopReason.TERMINATED, 1.0, 2)
        assert [(f.message, f.attempt) for f in played.failures] == [("connection lost, 1", 0), ("connection lost, 2", 1)]


def test_retries_are_bounded_and_what_never_worked_has_no_reward() -> None:
    (played,) = collect([Task(WAITING, 0)], Flaky(9), retries=1)
    assert (played.stop, played.reward, played.attempt, len(played.failures)) == (StopReason.ERROR, None, 1, 2)
    assert {f.boundary for f in played.failures} == {Boundary.INFRASTRUCTURE}


@pytest.mark.slow
def test_failures_of_the_environment_are_not_tried_again() -> None:
    with nothing_left():
        (played,) = collect(Unbuildable, "random", n=1)
    (failure,) = played.failures
    assert (failure.boundary, failure.kind, played.attempt) == (Boundary.ENV, "RuntimeError", 0)


@pytest.mark.slow
def test_a_worker_that_dies_is_infrastructure_and_the_episode_is_played_again(tmp_path: Path) -> None:
    register("test:DyingOnce-v0", DyingOnce, kwargs={"faults": False, "work": 0.0, "book": str(tmp_path / "book")})
    try:
        with nothing_left():
            (played,) = collect("test:DyingOnce-v0", lambda text: "x", n=1)
    finally:
        unregister("test:DyingOnce-v0")
    assert (played.reward, played.attempt, [f.kind for f in played.failures]) == (3.0, 1, ["WorkerDied"])


def test_costly_environments_are_shared_by_episodes_and_closed_at_the_end() -> None:
    Pooled.begin()
    assert len(collect(Pooled, lambda text: "x", n=20, concurrency=2)) == 20
    assert Pooled.built <= 2
    assert Pooled.closed == Pooled.built
    Pooled.begin("raise")
    assert {t.failures[0].phase for t in collect(Pooled, lambda text: "x", n=3, concurrency=1)} == {Phase.STEP}
    assert Pooled.closed == Pooled.built == 3


@pytest.mark.parametrize("leave", ["break", "raise", "cancel"])
@pytest.mark.parametrize("id", [WAITING, SLOW])
async def test_whoever_leaves_early_leaves_nothing_running(leave: str, id: str) -> None:
    tasks = [Task(id, 0), *(Task(id, 5000) for _ in range(8))]
    first = asyncio.Event()

    async def consume() -> None:
        stream = rollout(tasks, lambda text: text.removeprefix("task ").replace("5000", "50"), concurrency=5)
        async for _ in stream:
            first.set()
            if leave == "break":
                break
            if leave == "raise":
                await stream.athrow(KeyError("out"))
        await stream.aclose()

    async with nothing_left_here():
        task = asyncio.ensure_future(consume())
        await first.wait() if id == WAITING else await asyncio.sleep(0.3)
        if leave == "cancel":
            task.cancel()
        else:
            await first.wait()
        with pytest.raises((asyncio.CancelledError, KeyError)) if leave != "break" else contextlib.nullcontext():
            await task
    assert Waiting.open == 0


@pytest.mark.parametrize("seed", range(12))
async def test_a_rollout_cancelled_at_any_moment_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    tasks = [Task(WAITING, rng.randrange(30)) for _ in range(60)]
    blocking = [Task(SLOW, rng.randrange(3)) for _ in range(6)] if seed % 3 == 0 else []
    closes: Counter[int] = Counter()

    async def consume() -> None:
        mixed = rng.sample(tasks + blocking, len(tasks + blocking))
        async for _ in rollout(mixed, lambda text: "0.005", concurrency=20, wrappers=[lambda env: CountCloses(env, closes)]):
            await asyncio.sleep(rng.random() / 500)

    async with nothing_left_here():
        task = asyncio.ensure_future(consume())
        await asyncio.sleep(rng.random() * (0.8 if blocking else 0.12))
        task.cancel()
        await asyncio.wait([task])
    assert Waiting.open == 0
    assert set(closes.values()) <= {1}, "each was closed, and once"


# collect


def test_trajectories_are_in_the_order_of_tasks_and_members() -> None:
    played = collect([Task(WAITING, seed) for seed in (30, 0, 10)], lambda text: "x", group_size=2)
    assert [(t.task.seed, t.member) for t in played] == [(30, 0), (30, 1), (0, 0), (0, 1), (10, 0), (10, 1)]


@pytest.mark.parametrize(("to_terminal", "drawn"), [("err", True), ("out", False)])
def test_the_bar_is_drawn_on_the_stream_that_is_looked_at(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, to_terminal: str, drawn: bool
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: to_terminal == "err")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: to_terminal == "out")
    collect([GUESS, "math:Sums"], "oracle", n=3)
    out, err = capsys.readouterr()
    assert out == "", "what a script prints can be piped away"
    assert ("playing" in err) is drawn
    assert ("100%" in err) is drawn, "the bar counts n tasks of each environment"
    collect([Task(GUESS, 1)], "oracle", progress=True)
    assert "playing" in capsys.readouterr().err
    monkeypatch.setattr(sys.modules["palestra.rollouts.verbs"], "in_notebook", lambda: True)
    collect(GUESS, "oracle", n=3, progress=True)
    assert capsys.readouterr().err.startswith("\rplaying 1/3")


def test_an_interrupt_in_a_notebook_stops_the_episodes() -> None:
    async def notebook() -> None:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                collect([Task(WAITING, 60_000)], lambda text: "x")
        finally:
            timer.join()

    with nothing_left():
        loop = asyncio.new_event_loop()  # not asyncio.run, which would take the signal itself
        loop.run_until_complete(notebook())
        loop.close()
    assert Waiting.open == 0
    assert not LoopThread.shared.users


CTRL_C = """
import palestra, sys
def act(text):
    print("acting", flush=True)
    return "3600"
palestra.collect("tests.rollouts.faulty:Slow", act, n=8, concurrency=4)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_collect_of_hanging_environments_at_once() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with (
        nothing_left(),
        subprocess.Popen(
            [sys.executable, "-c", CTRL_C], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "acting\n"  # one environment hangs, the others boot, reset or hang: all must end
        process.send_signal(signal.SIGINT)
        process.wait(timeout=100)  # the environments hang for an hour
        assert "KeyboardInterrupt" in process.stderr.read()


# ---------------------------------------------------------------------------------------------------------- shared places


@pytest.mark.parametrize("places", [1, 2, 5])
def test_rollouts_that_share_places_play_every_episode(places: int) -> None:
    """Also a rollout that begins while the others hold all places, and one that has no episodes."""
    counts = [7, 3, 0, 1, 4]
    shared = EpisodeLimit(places)

    async def play(count: int) -> int:
        tasks = [Task(WAITING, seed) for seed in range(count)]
        return len(
            [
                trajectory
                async for trajectory in play_episodes(tasks, "random", RolloutOptions(concurrency=9, shared_limit=shared))
            ]
        )

    async def play_all() -> list[int]:
        async with asyncio.timeout(20):
            return await asyncio.gather(*map(play, counts))

    assert asyncio.run(play_all()) == counts
    assert Waiting.most <= places
