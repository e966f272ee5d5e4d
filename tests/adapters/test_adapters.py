import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palestra
from palestra import AsyncEnv, Env, Step, Task, as_async
from palestra.adapters import Blocking, Direct
from palestra.adapters.loop_thread import LoopThread
from palestra.adapters.workers import InWorker, WorkerPool
from palestra.errors import EnvError, EpisodeOver, EventLoopBlocked, Unsupported, UsageError, WorkerDied
from palestra.registry import make, make_async
from palestra.trajectory import Content
from palestra.wrappers import TurnLimit
from tests.leftovers import alive, nothing_left, nothing_left_here
from tests.rollouts.faulty import Dying, Slow, Unbuildable
from tests.test_core import AsyncDice, Dice

SLOW = "tests.rollouts.faulty:Slow"


# Guarded


@pytest.mark.parametrize(("last", "end"), [("no move", "terminated"), ("\\boxed{99}", "truncated")])
def test_a_step_after_the_end_says_when_and_how_the_episode_ended(last: str, end: str) -> None:
    env = make("game:GuessTheNumber-v0-easy")
    env.reset(task=Task("game:GuessTheNumber-v0-easy", 0))
    for action in ["\\boxed{99}"] * 3 + [last]:
        env.step(action)
    with pytest.raises(EpisodeOver) as caught:
        env.step("\\boxed{99}")
    assert str(caught.value) == f"this episode ended at turn 4 ({end}). Call reset() first."
    env.reset()
    assert env.step("no move").terminated


class Bounded(Dice):
    floor = 0.25
    ceiling = 0.75


class AsyncBounded(AsyncDice):
    floor = 0.25
    ceiling = 0.75


@pytest.mark.parametrize("kind", ["Bounded", "AsyncBounded"])
def test_adapters_and_wrappers_have_the_floor_and_the_ceiling_of_what_is_inside(kind: str) -> None:
    id = f"{__name__}:{kind}"
    with make(id) as env:
        for view in (env, as_async(env), TurnLimit(as_async(env), 3)):
            assert (view.floor, view.ceiling) == (0.25, 0.75)
    with make("tests.test_core:Dice") as plain:
        assert (plain.floor, plain.ceiling) == (0.0, None)


def test_a_step_before_the_beginning_and_anything_after_close_are_refused() -> None:
    env = make("tests.test_core:Dice")
    with pytest.raises(EpisodeOver) as caught:
        env.step("x")
    assert str(caught.value) == "this episode has not begun. Call reset() first."
    env.reset(seed=0)
    env.close()
    env.close()
    for verb in (lambda: env.step("x"), lambda: env.reset(seed=0)):
        with pytest.raises(EpisodeOver, match=r"has been closed\. Make a new one\."):
            verb()


def test_a_fork_goes_its_own_way_even_where_the_task_has_params() -> None:
    env = make("game:GuessTheNumber-v0-easy")
    env.reset(task=Task("game:GuessTheNumber-v0-easy", 0, params={"x": 1}))
    twin = env.fork()
    solved = twin.step(twin.oracle())
    assert env.step("no move").terminated
    with pytest.raises(EpisodeOver):
        env.step("no move")
    assert solved.terminated or not twin.step(twin.oracle()).info.get("format_error")
    assert env.max_turns == 4, "the author's attributes show through"
    env.seed_actions(3)
    assert env.sample_random_action()
    with pytest.raises(AttributeError):
        type(env).__new__(type(env)).env  # noqa: B018


# Direct


class Holding(Env):
    """Sleeps where it should not."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        time.sleep(0.11)
        return "", {}

    def step(self, action: str) -> Step:
        time.sleep(0.11)
        return Step("", 0.0, False, False, {})


async def test_an_environment_that_holds_the_loop_is_named_once_and_told_what_to_do() -> None:
    env = Direct(Holding())
    for verb, call in (("reset", lambda: env.reset(seed=0)), ("step", lambda: env.step(""))):
        with pytest.warns(EventLoopBlocked) as caught:
            await call()
        (warning,) = caught
        told = str(warning.message)
        assert told.startswith(f"{__name__}.Holding.{verb}() held the event loop for ")
        assert "Set `blocking = True` on the class" in told
        assert "or make it an AsyncEnv that awaits" in told
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await call()


async def test_direct_shows_everything_of_the_plain_environment() -> None:
    env = as_async(palestra.make("game:GuessTheNumber-v0-easy"))
    assert isinstance(env, Direct)
    assert as_async(env) is env
    await env.reset(seed=0)
    moves = set()
    for seed in range(9):
        await env.seed_actions(seed)
        moves.add(await env.sample_random_action())
    assert len(moves) > 1
    twin = await env.fork()
    assert await twin.oracle() == await env.oracle()
    assert await twin.sample_random_action() == await env.sample_random_action()
    assert env.max_turns == 4
    await env.close()
    with pytest.raises(AttributeError):
        Direct.__new__(Direct).env  # noqa: B018


# Blocking


class Exiting(AsyncEnv):
    """Raises what would end an event loop."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "", {}

    async def step(self, action: str) -> Step:
        if action == "exit":
            sys.exit(3)
        if action == "interrupt":
            raise KeyboardInterrupt
        if action == "wait":
            try:
                await asyncio.sleep(3600)
            finally:
                self.cancelled.set()
        return Step("", 0.0, False, False, {})


def test_an_async_environment_for_callers_who_block() -> None:
    with nothing_left():
        env, plain = make("tests.test_core:AsyncDice"), Dice()
        task = Task("d", 1)
        assert env.reset(task=task) == plain.reset(task=task)
        env.seed_actions(4)
        plain.seed_actions(4)
        assert env.sample_random_action() == plain.sample_random_action()
        assert env.step("x") == plain.step("x")
        assert isinstance(env.unwrapped, AsyncDice)
        with pytest.raises(Unsupported):
            env.oracle()
        with pytest.raises(Unsupported):
            env.fork()
        env.close()
        env.close()


def test_a_fork_shares_the_background_loop() -> None:
    with nothing_left():
        env = make("game:GuessTheNumber-v0-easy", wrappers=[lambda inner: inner])
        env.reset(seed=0)
        twin = env.fork()
        env.close()
        assert twin.step(twin.oracle())
        twin.close()


@pytest.mark.parametrize(("action", "error"), [("exit", SystemExit), ("interrupt", KeyboardInterrupt)])
def test_an_exit_of_the_environment_reaches_the_caller_and_spares_the_loop(action: str, error: type[BaseException]) -> None:
    with nothing_left():
        env = Blocking(Exiting())
        env.reset(seed=0)
        with pytest.raises(error):
            env.step(action)
        assert env.step("go on") == Step("", 0.0, False, False, {})
        env.close()
        env.close()
        with pytest.raises(RuntimeError, match="has been closed"):
            env.reset(seed=0)


def test_a_caller_who_is_interrupted_cancels_the_work() -> None:
    with nothing_left():
        inside = Exiting()
        env = Blocking(inside)
        env.reset(seed=0)
        timer = threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            env.step("wait")
        timer.join()
        assert inside.cancelled.wait(10)
        env.close()


def test_whoever_forgets_to_close_keeps_no_thread() -> None:
    with nothing_left():
        env: Blocking | None = Blocking(AsyncDice())
        other = LoopThread.hold()
        env = None
        assert env is None
        assert LoopThread.hold() is other, "somebody still holds it"
        other.release()
        other.release()
    with pytest.raises(AttributeError):
        Blocking.__new__(Blocking).env  # noqa: B018


def _run_script(folder: Path, body: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(body))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, str(script)], check=False, env=environment, capture_output=True, text=True, timeout=timeout
    )


@pytest.mark.slow
@pytest.mark.parametrize("holder", ["os", "threading", "types"])
def test_an_environment_that_outlives_the_modules_is_dropped_quietly(holder: str, tmp_path: Path) -> None:
    ended = _run_script(
        tmp_path,
        f"""
        import {holder} as holder
        import palestra
        from palestra.wrappers import KeepHistory
        holder.kept = palestra.make("game:GuessTheNumber-v0-easy", wrappers=[KeepHistory])
        holder.kept.reset(seed=0)
        """,
        timeout=100,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


# InWorker


@pytest.mark.slow
async def test_a_worker_gives_the_same_episode_and_is_used_again() -> None:
    async with nothing_left_here():
        async with WorkerPool.held():
            pids = set()
            for _ in range(2):
                env = make_async(SLOW)
                plain = Slow()
                observation, info = await env.reset(task=Task(SLOW, 5))
                assert observation == plain.reset(task=Task(SLOW, 5))[0]
                pids.add(info["pid"])
                await env.seed_actions(3)
                plain.seed_actions(3)
                assert await env.sample_random_action() == plain.sample_random_action()
                assert await env.oracle() == "0"
                for action in ("", "\0 ‮ é", "x" * 1_000_000):
                    assert await env.step(action) == plain.step(action)
                assert await env.healthy()
                await env.close()
                await env.close()
                assert not await env.healthy()
            assert len(pids) == 1
            assert alive(*pids)
        assert not alive(*pids)


@pytest.mark.slow
async def test_whatever_is_raised_in_a_worker_is_the_environments_failure_and_the_worker_survives() -> None:
    env = make_async(SLOW)
    for action, kind in (("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("wrong", "TypeError")):
        await env.reset(seed=1)
        with pytest.raises(EnvError) as caught:
            await env.step(action)
        assert caught.value.kind == kind
        assert kind in caught.value.detail
        assert await env.healthy()
    await env.reset(seed=1)
    assert (await env.step("\ud800")).observation == "heard '\ufffd'"
    step = await env.step("live")
    assert (step.info["kept"], step.info["loop"]) == (1, {"$unserialisable": "builtins.object"})
    with pytest.raises(Unsupported):
        await env.fork()
    await env.close()
    with pytest.raises(UsageError, match="has not been reset, or has been closed"):
        await env.step("x")


@pytest.mark.slow
async def test_an_environment_that_cannot_be_built_or_dies_is_told_and_leaves_nothing() -> None:
    async with nothing_left_here():
        env = InWorker("tests.rollouts.faulty:Unbuildable", {}, Unbuildable)
        for _ in range(2):
            with pytest.raises(EnvError, match="cannot be built"):
                await env.reset(seed=0)
        await env.close()
        env = InWorker("tests.rollouts.faulty:Dying", {}, Dying)
        await env.reset(seed=10)
        with pytest.raises(Unsupported, match=r"Dying has no oracle\(\)"):
            await env.oracle()
        with pytest.raises(WorkerDied, match="ended in the middle of a call"):
            await env.step("x")
        await env.close()


@pytest.mark.slow
async def test_a_call_that_is_given_up_kills_the_worker_and_what_it_started() -> None:
    async with nothing_left_here():
        env = make_async(SLOW)
        _, info = await env.reset(seed=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await env.step("3600")
        await env.close()
        assert not alive(info["pid"])


@pytest.mark.slow
async def test_when_the_process_that_forks_is_killed_the_next_one_to_ask_starts_it_again() -> None:
    async with nothing_left_here(), WorkerPool.held() as pool:
        env = make_async(SLOW)
        await env.reset(seed=1)
        assert pool._process is not None
        os.kill(pool._process.pid, signal.SIGKILL)
        pool._process.wait()
        other = make_async(SLOW)
        with pytest.raises(WorkerDied, match="the process that forks the workers has ended"):
            await other.reset(seed=1)
        assert (await other.reset(seed=1))[0] == "task 1"
        await other.close()
        await env.close()


SCRIPT = """
import palestra, sys
from palestra import Env, Step

class Mine(Env):
    blocking = True
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        return "go", {}
    def step(self, action):
        return Step("", 1.0, True, False, {})

def play():
    played = palestra.collect(Mine, lambda text: "x", n=4, concurrency=2)
    print([one.reward for one in played], {failure.message for one in played for failure in one.failures})
"""


@pytest.mark.slow
@pytest.mark.parametrize("guarded", [True, False])
def test_a_class_of_a_script_runs_in_a_worker_and_one_without_a_guard_starts_no_processes_of_processes(
    guarded: bool, tmp_path: Path
) -> None:
    ended = _run_script(tmp_path, SCRIPT + ("if __name__ == '__main__':\n    play()\n" if guarded else "play()\n"))
    assert ended.stdout.count("[1.0, 1.0, 1.0, 1.0] set()\n") == 1
    assert ("put what it runs under `if __name__" in ended.stdout) is not guarded
    assert (ended.stderr == "") or not guarded


def test_a_class_typed_into_a_shell_cannot_go_to_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(UsageError, match="move it into a module"):
        InWorker("__main__:Mine", {}, Slow)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda env: env.reset(seed="a"), r"takes a whole number, got 'a' \(str\)"),
        (lambda env: env.reset(seed=1.5), r"takes a whole number, got 1.5 \(float\)"),
        (lambda env: env.reset(task=7), r"takes a palestra.Task, got 7 \(int\)"),
        (lambda env: env.step(5), r"step\(\) takes text, .* got 5 \(int\)"),
        (lambda env: env.step(None), r"step\(\) takes text, .* got None \(NoneType\)"),
    ],
)
def test_wrong_types_are_told_at_the_surface(call: Any, said: str) -> None:
    env = palestra.make("game:GuessTheNumber-v0-easy")
    env.reset(seed=np.int64(3))  # type: ignore[arg-type]
    assert env.task.seed == 3
    assert type(env.task.seed) is int
    with pytest.raises(UsageError, match=said):
        call(env)
