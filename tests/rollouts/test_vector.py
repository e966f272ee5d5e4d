import asyncio
import gc
import math
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from palestra import AsyncEnv, Env, Step, Task, make, make_vec
from palestra.errors import EpisodeOver, UsageError
from palestra.foundation.seeding import derive_seed
from palestra.rollouts import Autoreset
from palestra.trajectory import Content
from tests.leftovers import nothing_left

ECHO, SLOW = f"{__name__}:Echo", "tests.rollouts.faulty:Slow"
GUESS = "game:GuessTheNumber-v0-easy"


class Unusual(BaseException):
    """Such as the panic of an extension written in Rust."""


BARE: dict[str, type[BaseException]] = {
    "interrupt": KeyboardInterrupt,
    "generator": GeneratorExit,
    "cancelled": asyncio.CancelledError,
    "unusual": Unusual,
}


class Plain(Env):
    """Ends at "end" or "cut", misbehaves where it is told to."""

    built = closed = 0

    def __init__(self) -> None:
        Plain.built += 1

    def close(self) -> None:
        Plain.closed += 1

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        return f"start {self.task.seed}", {"first": True}

    def step(self, action: str) -> Step:
        self.turn += 1
        if action == "raise":
            raise KeyError("step went wrong")
        if action == "exit":
            raise SystemExit(3)
        if action in BARE:
            raise BARE[action]()
        if action == "ctrl-c":
            signal.raise_signal(signal.SIGINT)
        if action == "wrong":
            return None  # type: ignore[return-value]
        if action == "text":
            return Step("", "no number", False, False, {})  # type: ignore[arg-type]
        return Step(f"heard {action}", 1, action == "end", action == "cut", {"turn": self.turn})


class Echo(AsyncEnv):
    """The same, on the loop; "wait" never answers, a number waits so long."""

    resetting = most_resetting = 0

    def __init__(self) -> None:
        self.inner = Plain()

    async def close(self) -> None:
        self.inner.close()

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        Echo.resetting += 1
        Echo.most_resetting = max(Echo.most_resetting, Echo.resetting)
        await asyncio.sleep(0.05)
        Echo.resetting -= 1
        return self.inner.reset(task=self.task)

    async def step(self, action: str) -> Step:
        if action == "wait":
            await asyncio.sleep(3600)
        if action == "late":
            raise TimeoutError("my own")
        if action.startswith("0."):
            await asyncio.sleep(float(action))
        return self.inner.step(action)


class Broken(Plain):
    """Cannot be reset every other time, and never closed."""

    resets = 0

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        Broken.resets += 1
        if Broken.resets % 2:
            raise KeyError("reset went wrong")
        return super().reset(seed=seed, task=task)

    def close(self) -> None:
        raise SystemExit("close went wrong")


class AsyncBroken(Echo):
    """The same, on the loop."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self.inner = Broken()
        return self.inner.reset(seed=seed, task=task)


BOTH = pytest.mark.parametrize("id", [f"{__name__}:Plain", ECHO], ids=["in place", "on the loop"])


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_it_gives_what_single_environments_give(autoreset: Autoreset) -> None:
    with make_vec(GUESS, 8, autoreset=autoreset) as vec:
        observations, infos = vec.reset(seed=7)
        singles = [make(GUESS) for _ in range(8)]
        seeds = [derive_seed(7, "vector", i) + 1 for i in range(8)]
        assert list(zip(observations, infos, strict=True)) == [
            env.reset(task=Task(GUESS, seed)) for env, seed in zip(singles, seeds, strict=True)
        ]
        fresh = [False] * 8
        for turn in range(30):
            action = f"\\boxed{{{turn % 11}}}"
            got = vec.step([action] * 8)
            for i, env in enumerate(singles):
                if fresh[i]:
                    fresh[i] = False
                    seeds[i] += 1
                    assert (got.observations[i], got.infos[i]) == env.reset(task=Task(GUESS, seeds[i]))
                    assert (got.rewards[i], got.terminated[i], got.truncated[i]) == (0.0, False, False)
                    continue
                step = env.step(action)
                assert (got.rewards[i], got.terminated[i], got.truncated[i]) == step[1:4]
                ended = step.terminated or step.truncated
                if ended and autoreset == "same_step":
                    seeds[i] += 1
                    first, info = env.reset(task=Task(GUESS, seeds[i]))
                    assert got.observations[i] == first
                    assert got.infos[i] == {**info, "final_observation": step.observation, "final_info": step.info}
                else:
                    fresh[i] = ended
                    assert (got.observations[i], got.infos[i]) == (step.observation, step.info)


@BOTH
def test_one_that_fails_never_touches_its_neighbours(id: str) -> None:
    Plain.built = Plain.closed = 0
    with nothing_left(), make_vec(id, 5) as vec:
        vec.reset(seed=0)
        got = vec.step(["raise", "exit", "wrong", "text", "fine"])
        assert [math.isnan(reward) for reward in got.rewards] == [True] * 4 + [False]
        assert got.truncated.tolist() == [True] * 4 + [False]
        kinds = [info["failure"].kind for info in got.infos[:4]]
        assert kinds[:2] == ["KeyError", "SystemExit"]
        assert kinds[2] in ("TypeError", "EnvError")
        assert kinds[3] == "EnvError"
        assert (got.observations[4], got.rewards[4], got.infos[4]) == ("heard fine", 1.0, {"turn": 1})
        again = vec.step(["x"] * 5)
        assert all(str(shown).startswith("start") for shown in again.observations[:4]), "replaced, and begun anew"
        assert again.infos[4] == {"turn": 2}
        assert again.rewards.dtype == np.float64
        assert (Plain.built, Plain.closed) == (9, 4), "what failed was closed, and replaced"
    assert Plain.closed == 9


@pytest.mark.parametrize("id", [f"{__name__}:Broken", f"{__name__}:AsyncBroken"], ids=["in place", "on the loop"])
def test_a_reset_that_fails_is_told_and_tried_again_in_a_new_environment(id: str) -> None:
    Broken.resets = 0
    with nothing_left(), make_vec(id, 1) as vec:
        observations, (info,) = vec.reset(seed=0)
        assert (observations, info["failure"].kind, info["failure"].phase) == ([""], "KeyError", "reset")
        assert vec.step(["x"]).infos == [{"first": True}]
        ended = vec.step(["end"])
        assert (ended.terminated.tolist(), ended.rewards.tolist()) == ([True], [1.0]), "the episode before it is not lost"
        assert ended.infos[0]["final_observation"] == "heard end"
        assert ended.infos[0]["failure"].message == "'reset went wrong'"


@BOTH
def test_both_ends_keep_the_last_observation_and_info(id: str) -> None:
    with make_vec(id, 2) as vec:
        vec.reset(seed=0)
        got = vec.step(["end", "cut"])
        assert (got.terminated.tolist(), got.truncated.tolist()) == ([True, False], [False, True])
        assert [info["final_observation"] for info in got.infos] == ["heard end", "heard cut"]
        assert [info["final_info"] for info in got.infos] == [{"turn": 1}] * 2
        assert all(info["first"] for info in got.infos)
    with make_vec(id, 1, autoreset="next_step") as vec:
        vec.reset(seed=0)
        assert vec.step(["end"]).observations == ["heard end"]
        following = vec.step(["ignored"])
        assert str(following.observations[0]).startswith("start")
        assert following.rewards.tolist() == [0.0]


def test_a_slow_neighbour_is_not_waited_for() -> None:
    with nothing_left(), make_vec(ECHO, 3) as vec:
        vec.reset(seed=0)
        vec.send({0: "0.3", 1: "x", 2: "0.1"})
        order: list[int] = []
        while len(order) < 3:
            order += vec.recv()
            if order == [1]:
                vec.send({1: "0.15"})  # goes on while the others are under way
            if 1 in order[1:]:
                break
        while 0 not in order:
            order += vec.recv()
        assert order == [1, 2, 1, 0]


@BOTH
def test_send_and_recv_are_refused_where_they_make_no_sense(id: str) -> None:
    with make_vec(id, 2) as vec:
        for verb in (lambda: vec.step(["x"] * 2), lambda: vec.send({0: "x"})):
            with pytest.raises(EpisodeOver, match=r"Call reset\(\) first"):
                verb()
        vec.reset(seed=0)
        with pytest.raises(UsageError, match="nothing was sent"):
            vec.recv()
        vec.send({0: "x"})
        with pytest.raises(UsageError, match=r"reset\(\) while environments \[0\] are under way"):
            vec.reset()
        with pytest.raises(UsageError, match=r"step\(\) while environments \[0\] are under way"):
            vec.step(["x"] * 2)
        with pytest.raises(UsageError, match="environment 0 has not finished its last action"):
            vec.send({0: "x"})
        with pytest.raises(UsageError, match="there is no environment 2: they are numbered 0 to 1"):
            vec.send({2: "x"})
        assert list(vec.recv()) == [0]
        with pytest.raises(UsageError, match="2 environments need as many actions, got 1"):
            vec.step(["x"])
        assert len(vec) == 2
    vec.close()
    with pytest.raises(EpisodeOver):
        vec.step([])


@pytest.mark.parametrize("action", BARE)
@pytest.mark.parametrize(("id", "async_mode"), [(f"{__name__}:Plain", False), (f"{__name__}:Plain", True), (ECHO, False)])
def test_no_exception_of_an_environment_ends_the_others(id: str, async_mode: bool, action: str) -> None:
    with make_vec([id, id], async_mode=async_mode) as vector:
        vector.reset(seed=0)
        observations, rewards, _, truncated, infos = vector.step(["go", action])
        assert (observations[0], rewards[0], math.isnan(rewards[1])) == ("heard go", 1.0, True)
        assert truncated.tolist() == [False, True]
        assert infos[1]["failure"].kind == BARE[action].__name__
        vector.send({0: action, 1: "go"})
        failed = vector.recv(timeout=60)
        while len(failed) < 2:
            failed |= vector.recv(timeout=60)
        assert failed[0].info["failure"].kind == BARE[action].__name__


@pytest.mark.parametrize("where", ["reset", "close", "__init__"])
@pytest.mark.parametrize("async_mode", [False, True])
def test_no_exception_of_another_verb_ends_the_others(where: str, async_mode: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    raising = iter([False, True, True])

    def verb(self: Plain, *args: Any, **keywords: Any) -> Any:
        if next(raising, False):
            raise Unusual
        return usual(self, *args, **keywords)

    with make_vec(f"{__name__}:Plain", 2, async_mode=async_mode) as vector:
        usual = getattr(Plain, where)
        monkeypatch.setattr(Plain, where, verb)
        vector.reset(seed=0)
        for _ in range(3):
            vector.step(["raise", "end"])
        observations, *_ = vector.step(["go", "go"])
        assert observations[1] == "heard go"


async def cancel_own_task() -> Step:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(3600)
    raise AssertionError


async def swallow_cancellation() -> Step:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@pytest.mark.parametrize(("how", "kind"), [(cancel_own_task, "CancelledError"), (swallow_cancellation, "Deadline")])
def test_an_environment_cancels_and_refuses_for_itself_only(how: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.driving"], "GRACE", 0.05)
    usual = Echo.step
    monkeypatch.setattr(Echo, "step", lambda self, action: how() if action == "misbehave" else usual(self, action))
    with make_vec([ECHO, ECHO], deadline=1.0) as vector:
        vector.reset(seed=0)
        observations, _, _, _, infos = vector.step(["go", "misbehave"])
        assert (observations[0], infos[1]["failure"].kind) == ("heard go", kind)
        assert vector.step(["go", "go"])[0][0] == "heard go"


def test_ctrl_c_ends_the_step_of_a_vector() -> None:
    before = signal.getsignal(signal.SIGINT)
    with make_vec(f"{__name__}:Plain", 2) as vector:
        vector.reset(seed=0)
        with pytest.raises(KeyboardInterrupt):
            vector.step(["go", "ctrl-c"])
    assert signal.getsignal(signal.SIGINT) is before


def test_all_are_reset_at_once() -> None:
    Echo.most_resetting = 0
    with make_vec(ECHO, 40) as vec:
        vec.reset(seed=0)
    assert Echo.most_resetting > 10


@pytest.mark.slow
def test_recv_may_give_up_and_a_deadline_is_told_apart_from_an_error_of_the_same_kind() -> None:
    with nothing_left(), make_vec(ECHO, 2, deadline=1.5) as vec:
        vec.reset(seed=0)
        vec.send({0: "wait", 1: "late"})
        ready = vec.recv()
        assert ready[1].info["failure"].kind == "TimeoutError"
        assert vec.recv(timeout=0.01) == {}
        late = vec.recv()[0]
        assert (late.info["failure"].kind, late.info["failure"].message) == ("Deadline", "the deadline of 1.5 s passed")
        vec.send({0: "wait"})  # begins a new episode
        assert not vec.recv()[0].truncated
        vec.send({0: "wait"})  # closed while it is under way


@pytest.mark.slow
def test_a_blocking_environment_that_hangs_is_replaced_and_its_process_killed() -> None:
    with nothing_left(), make_vec(SLOW, 3, deadline=10.0) as vec:  # enough for a new process on a busy machine
        _, infos = vec.reset(seed=0)
        got = vec.step(["3600", "0", "exit"])
        assert got.truncated.tolist() == [True, False, True]
        assert [info["failure"].kind for info in (got.infos[0], got.infos[2])] == ["Deadline", "SystemExit"]
        again = vec.step(["0"] * 3)
        assert again.infos[0]["pid"] != infos[0]["pid"]
        assert again.observations[1] == "heard '0'"
        vec.send({1: "3600"})  # closed while it hangs


def test_the_garbage_collector_is_left_as_it_was() -> None:
    assert gc.isenabled()
    with make_vec(GUESS, 2) as vec:
        vec.reset(seed=0)
        vec.step(["\\boxed{5}"] * 2)
        assert gc.isenabled()
        gc.disable()
        try:
            vec.step(["\\boxed{5}"] * 2)
            assert not gc.isenabled()
        finally:
            gc.enable()


def test_a_vector_of_ids_plays_each_with_its_own_keywords() -> None:
    highs = [4, 6]
    with make_vec([GUESS] * 2, vec_kwargs=[{"high": high} for high in highs]) as vec:
        observations, _ = vec.reset(seed=1)
    for observation, high in zip(observations, highs, strict=True):
        assert f"and {high}" in observation


def test_a_list_of_seeds_gives_the_episodes_of_single_environments() -> None:
    seeds = [5, 2**40, 7]
    alone = []
    for seed in seeds:
        with make("game:Sudoku-v0-easy") as env:
            alone.append(env.reset(seed=seed)[0])
    with make_vec("game:Sudoku-v0-easy", 3) as vec:
        assert vec.reset(seed=seeds)[0] == alone
        with pytest.raises(UsageError, match="3 environments need as many seeds, got 2"):
            vec.reset(seed=[1, 2])


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_async_mode_gives_the_same_steps(autoreset: Autoreset) -> None:
    seen = []
    for async_mode in (False, True):
        with make_vec([GUESS] * 4, async_mode=async_mode, autoreset=autoreset) as vec:
            vec.reset(seed=0)
            steps = [vec.step([f"\\boxed{{{turn}}}"] * 4) for turn in range(1, 12)]
        seen.append([(step.observations, *(array.tolist() for array in step[1:4]), step.infos) for step in steps])
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_vec(ECHO, 0), "num_envs must be at least 1, got 0"),
        (lambda: make_vec(ECHO, 1, autoreset="never"), "autoreset is"),  # type: ignore[arg-type]
        (lambda: make_vec([GUESS] * 2, num_envs=3), "num_envs=3, but 2 ids are named"),
        (lambda: make_vec([GUESS] * 2, vec_kwargs=[{}]), "2 environments need as many vec_kwargs, got 1"),
    ],
)
def test_a_vector_refuses_what_makes_no_sense(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()


def test_the_number_of_environments_is_one_or_that_of_the_ids() -> None:
    with make_vec([GUESS, ECHO], seed=3) as vec, make_vec(GUESS) as single:
        assert (vec.num_envs, len(vec), single.num_envs) == (2, 2, 1)
        assert vec.reset()[0] == vec.reset()[0]


def test_closing_while_steps_are_under_way_leaves_no_environment_open() -> None:
    Plain.built = Plain.closed = 0
    vec = make_vec(ECHO, 2)
    vec.reset(seed=0)
    vec.send({0: "wait", 1: "0.02"})
    vec.close()
    assert (Plain.built, Plain.closed) == (2, 2)
    with pytest.raises(UsageError, match="nothing was sent"):
        vec.recv()
