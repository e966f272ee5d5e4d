"""What the code of an environment does to the task that plays its episode costs this episode, and no other."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import palestra
from palestra import AsyncEnv, Step, StopReason, Task, Trajectory
from palestra.adapters.loop_thread import run_anywhere
from palestra.rollouts import EpisodeKey, RolloutOptions, run_episode, scheduler
from palestra.rollouts.driving import EpisodeTask
from palestra.rollouts.recording import audit, recorded
from palestra.trajectory import Phase
from tests.leftovers import nothing_left_here
from tests.rollouts.hostile import (
    Unusual,
    answer_late,
    cancel_all,
    cancel_itself,
    cancel_itself_and_answer,
    cancel_itself_later,
    current,
    spin,
    swallow,
    swallow_in_a_group,
    swallow_in_children,
)

DONE = Step("", 1.0, True, False, {"success": True})


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.driving"], "GRACE", 0.05)


class Misbehaving(AsyncEnv):
    """Every second task misbehaves in its step, as ``how`` says. All others score 1."""

    how: Callable[[], Awaitable[Any]]

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "go", {}

    async def step(self, action: str) -> Step:
        if self.task.seed % 2:
            await type(self).how()
        return DONE


def tasks(n: int = 8) -> list[Task]:
    return [Task(f"{__name__}:Misbehaving", seed) for seed in range(n)]


def raising(error: BaseException) -> Callable[[], Awaitable[Any]]:
    async def how() -> None:
        raise error

    return how


class Endless:
    """Neither a future nor an end."""

    _asyncio_future_blocking = True

    def __await__(self) -> Any:
        yield self

    def cancel(self, *_: object) -> bool:
        return True

    def add_done_callback(self, *_: object, **__: object) -> None: ...

    def get_loop(self) -> Any:
        return asyncio.get_running_loop()


async def await_what_never_ends() -> None:
    await Endless()


HOW: dict[str, tuple[Callable[[], Awaitable[Any]], StopReason]] = {
    "an exception of any class": (raising(Unusual()), StopReason.ERROR),
    "a generator's end": (raising(GeneratorExit()), StopReason.ERROR),
    "an interrupt of its own": (raising(KeyboardInterrupt()), StopReason.ERROR),
    "an exit": (raising(SystemExit(0)), StopReason.ERROR),
    "a group": (raising(BaseExceptionGroup("g", [KeyboardInterrupt(), Unusual()])), StopReason.ERROR),
    "a cancellation": (raising(asyncio.CancelledError()), StopReason.ERROR),
    "cancels itself": (cancel_itself, StopReason.ERROR),
    "cancels itself and answers": (cancel_itself_and_answer, StopReason.ERROR),
    "cancels itself later": (cancel_itself_later, StopReason.ERROR),
    "cancels all tasks": (cancel_all, StopReason.ERROR),
    "awaits no future": (await_what_never_ends, StopReason.ERROR),
    "swallows its cancellation": (swallow, StopReason.DEADLINE),
    "swallows it in children": (swallow_in_children, StopReason.DEADLINE),
    "swallows it in a group": (swallow_in_a_group, StopReason.DEADLINE),
    "answers after the deadline": (answer_late, StopReason.DEADLINE),
    "spins": (spin, StopReason.DEADLINE),
}


@pytest.mark.parametrize("name", HOW)
def test_each_episode_is_accounted_for_and_the_loop_closes(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    how, stop = HOW[name]
    monkeypatch.setattr(Misbehaving, "how", how, raising=False)

    async def play() -> list[Trajectory]:
        options = RolloutOptions(deadline=0.3, retries=0)
        trajectories = [trajectory async for trajectory in recorded(tmp_path, tasks(), lambda text: "act", options)]
        assert current().cancelling() == 0, "what an episode cancels is no cancellation of the consumer"
        return trajectories

    played = sorted(asyncio.run(play()), key=lambda trajectory: trajectory.group)
    assert [trajectory.stop for trajectory in played] == [StopReason.TERMINATED, stop] * 4
    assert [trajectory.reward for trajectory in played] == [1.0, None] * 4
    assert {(failure.phase, failure.boundary) for trajectory in played for failure in trajectory.failures} == {
        (Phase.STEP, "env")
    }
    findings = audit(tmp_path)
    assert (findings.sound, findings.ledger.issued, findings.ledger.open) == (True, 8, 0)


def test_what_was_abandoned_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "how", swallow, raising=False)
    (played,) = palestra.collect(tasks(2)[1:], lambda text: "act", deadline=0.2)
    assert played.failures[0].message == (
        "the episode's deadline of 0.2 s passed while waiting for step, which did not end when it was cancelled and has been "
        "abandoned"
    )


async def timed() -> None:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(3600)
    except TimeoutError:
        pass
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.sleep(3600))
            group.create_task(raising(ValueError())())  # type: ignore[arg-type]
    except* ValueError:
        pass


async def test_timeouts_and_task_groups_of_an_environment_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "how", timed, raising=False)
    async with nothing_left_here():
        rewards = [trajectory.reward async for trajectory in palestra.rollout(tasks(), lambda text: "act")]
    assert rewards == [1.0] * 8


async def play_another_rollout() -> None:
    inner = [Task(f"{__name__}:Misbehaving", seed) for seed in (0, 2)]
    async with asyncio.timeout(60):
        assert [trajectory.reward async for trajectory in palestra.rollout(inner, lambda text: "act")] == [1.0, 1.0]
        async for _ in palestra.rollout(inner, lambda text: asyncio.sleep(3600)):
            raise AssertionError("cancelled below")


async def test_an_environment_may_play_a_rollout_which_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "how", play_another_rollout, raising=False)
    async with nothing_left_here():
        played = [trajectory async for trajectory in palestra.rollout(tasks(2)[1:], lambda text: "act", deadline=0.5)]
    assert [trajectory.stop for trajectory in played] == [StopReason.DEADLINE]


async def test_a_cancelled_consumer_stops_whatever_the_episodes_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "how", swallow, raising=False)

    async def consume() -> None:
        async for _ in palestra.rollout(tasks(), lambda text: "act", deadline=600):
            pass

    consumer = asyncio.ensure_future(consume())
    await asyncio.sleep(0.05)
    consumer.cancel()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await consumer


async def test_an_episode_that_code_outside_cancels_is_a_failure_of_the_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "how", lambda: asyncio.sleep(3600), raising=False)

    async def meddle() -> None:
        running: list[asyncio.Task[Any]] = []
        while not running:
            await asyncio.sleep(0.01)
            running = [task for task in asyncio.all_tasks() if isinstance(task, EpisodeTask)]
        assert all(task.cancel() for task in running)

    meddler = asyncio.ensure_future(meddle())
    played = [trajectory async for trajectory in palestra.rollout(tasks(2)[1:], lambda text: "act", deadline=600)]
    await meddler
    assert [(trajectory.stop, trajectory.failures[0].boundary, trajectory.failures[0].kind) for trajectory in played] == [
        (StopReason.ERROR, "infrastructure", "CancelledError")
    ]


async def test_a_cancellation_that_arrives_later_is_a_failure_of_the_phase_that_asked_for_it() -> None:
    class Hasty(Misbehaving):
        async def step(self, action: str) -> Step:
            current().cancel()
            return Step("", 0.0, False, False, {})

    async def act(text: str) -> str:
        await asyncio.sleep(0)
        return "act"

    (played,) = [trajectory async for trajectory in palestra.rollout(Hasty, act, n=1)]
    assert [(failure.kind, failure.phase) for failure in played.failures] == [("CancelledError", Phase.STEP)]


async def test_a_bug_in_the_play_of_an_episode_is_raised_and_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise AssertionError("a bug of ours")

    monkeypatch.setattr(scheduler, "run_episode", broken)
    async with asyncio.timeout(20):
        with pytest.raises(AssertionError, match="a bug of ours"):
            await anext(palestra.rollout(tasks(), lambda text: "act"))


@pytest.mark.parametrize(("seconds", "completed"), [(0.05, True), (3600, False)])
async def test_a_cleanup_that_has_begun_goes_on_when_the_episode_is_cancelled_for_as_long_as_an_end_may_take(
    seconds: float, completed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.driving"], "STOP_SECONDS", 4.0 if completed else 0.2)
    closing, closed = asyncio.Event(), asyncio.Event()

    class Slow(Misbehaving):
        async def close(self) -> None:
            closing.set()
            await asyncio.sleep(seconds)
            closed.set()

    class Supply:
        async def acquire(self, task: Task) -> AsyncEnv:
            return Slow()

        async def give_back(self, task: Task, env: AsyncEnv, *, sound: bool) -> None:
            await env.close()

    episode = asyncio.ensure_future(run_episode(Supply(), Answering(), EpisodeKey(Task("t"))))
    await closing.wait()
    episode.cancel()
    async with asyncio.timeout(20):
        with pytest.raises(asyncio.CancelledError):
            await episode
    assert closed.is_set() is completed


def test_an_environment_cannot_cancel_other_work_of_a_loop_that_is_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Misbehaving, "how", cancel_all, raising=False)

    async def work() -> tuple[list[float | None], str]:
        beside = asyncio.ensure_future(asyncio.sleep(0.05, "done"))
        rewards = [trajectory.reward async for trajectory in palestra.rollout(tasks(), lambda text: "act", concurrency=1)]
        return rewards, await beside

    assert run_anywhere(work()) == ([1.0, None] * 4, "done")


left: list[asyncio.Task[Any]] = []


async def leave_behind() -> None:
    left.append(asyncio.ensure_future(swallow()))
    await asyncio.sleep(0)


async def in_a_loop_of_the_program() -> list[float | None]:
    return [trajectory.reward async for trajectory in palestra.rollout(tasks(2), lambda text: "act")]


LOOPS: dict[str, Callable[[], list[float | None]]] = {
    "ours": lambda: [trajectory.reward for trajectory in palestra.collect(tasks(2), lambda text: "act")],
    "the program's": lambda: asyncio.run(in_a_loop_of_the_program()),
    "the background loop": lambda: asyncio.run(collect_in_the_background()),
}


async def collect_in_the_background() -> list[float | None]:
    return [trajectory.reward for trajectory in palestra.collect(tasks(2), lambda text: "act")]


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_closes_although_a_sound_episode_has_left_a_task_that_refuses_to_end(
    loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Misbehaving, "how", leave_behind, raising=False)
    assert LOOPS[loop]() == [1.0, 1.0]


async def test_a_task_that_a_sound_episode_has_left_goes_on_in_a_loop_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = asyncio.Event()

    async def serve() -> None:
        left.append(asyncio.ensure_future(serving.wait()))

    left.clear()
    monkeypatch.setattr(Misbehaving, "how", serve, raising=False)
    assert await in_a_loop_of_the_program() == [1.0, 1.0]
    await asyncio.sleep(0.1)
    assert not left[0].done()
    serving.set()
    assert await left[0]


class Answering:
    def act(self, conversation: object) -> str:
        return "act"


PROGRAM = """
import asyncio, sys
import palestra
from palestra import AsyncEnv, Env, Step, Task

class Refusing(AsyncEnv):
    async def reset(self, *, seed=None, task=None):
        await super().reset(seed=seed, task=task)
        return "go", {}

    async def step(self, action):
        while self.task.seed:
            print("stepping", flush=True)
            try:
                await asyncio.sleep(3600)
            except BaseException:
                pass
        return Step("", 1.0, True, False, {})

async def main():
    async for played in palestra.rollout([Task("__main__:Refusing", seed) for seed in range(2)], lambda text: "act"):
        print(played.stop, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_program_whose_environment_refuses_to_end(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        assert running.stdout is not None
        assert {running.stdout.readline().strip() for _ in range(2)} == {"stepping", "terminated"}
        running.send_signal(signal.SIGINT)
        _, problems = running.communicate(timeout=10)
    assert running.returncode == -signal.SIGINT, problems
    assert "KeyboardInterrupt" in problems
    assert "Exception ignored" not in problems
