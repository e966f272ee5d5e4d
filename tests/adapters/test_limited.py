"""``max_turns`` truncates episodes wherever it is declared and however they are played."""

from collections.abc import Iterator
from typing import Any

import pytest

import palestra
from palestra import AsyncEnv, Env, Step, collect, registry
from palestra.adapters import Direct
from palestra.adapters.limited import Limited
from palestra.adapters.meter import MOST_BYTES, MOST_STEPS, LoopMeter
from palestra.errors import EnvError, UsageError
from palestra.rollouts import make_vec
from palestra.trajectory import StopReason


class Endless(Env):
    """Never ends by itself."""

    declared: int | None = None

    def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        return "go", {} if self.declared is None else {"max_turns": self.declared}

    def step(self, action: str) -> Step:
        self.turn += 1
        return Step(str(self.turn), 0.0, False, False, {})

    def sample_random_action(self) -> str:
        return "x"

    def fork(self) -> "Endless":
        twin = type(self)()
        twin.task, twin.turn = self.task, self.turn
        return twin


class OnClass(Endless):
    max_turns = 5


class InInfo(Endless):
    declared = 5


class InWorkerOnClass(OnClass):
    blocking = True


class SetLate(Endless):
    def __init__(self) -> None:
        self.max_turns = 5


class InWorkerSetLate(SetLate):
    blocking = True


class Ends(OnClass):
    def step(self, action: str) -> Step:
        return super().step(action)._replace(terminated=True)


class Zero(Endless):
    max_turns = 0


class Waiting(AsyncEnv):
    """The same as an async environment."""

    declared: int | None = None

    async def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        self._begin(seed, task)
        return "go", {} if self.declared is None else {"max_turns": self.declared}

    async def step(self, action: str) -> Step:
        return Step("", 0.0, False, False, {})

    async def sample_random_action(self) -> str:
        return "x"

    async def fork(self) -> "Waiting":
        twin = type(self)()
        twin.task = self.task
        return twin


class WaitingOnClass(Waiting):
    max_turns = 5


class WaitingInInfo(Waiting):
    declared = 5


LIMITED = [OnClass, InInfo, InWorkerOnClass, SetLate, InWorkerSetLate, WaitingOnClass, WaitingInInfo]


@pytest.fixture(params=[*LIMITED, "registered", "registered async"], ids=lambda kind: getattr(kind, "__name__", kind))
def limited(request: pytest.FixtureRequest) -> Iterator[str]:
    """An id whose episodes last five turns."""
    if isinstance(request.param, str):
        registry.register("t:Limited-v0", Waiting if "async" in request.param else Endless, max_turns=5)
        yield "t:Limited-v0"
        registry.unregister("t:Limited-v0")
    else:
        yield f"{__name__}:{request.param.__name__}"


def turns(env: Env) -> int:
    env.reset(seed=0)
    for turn in range(1, 50):
        step = env.step("x")
        if step.truncated:
            assert not step.terminated
            assert step.info["stop_reason"] == StopReason.TURN_LIMIT
            return turn
    return 50


def test_make_truncates(limited: str) -> None:
    with palestra.make(limited) as env:
        assert [turns(env), turns(env)] == [5, 5]


async def test_make_async_truncates(limited: str) -> None:
    env = palestra.make_async(limited)
    await env.reset(seed=0)
    steps = [await env.step("x") for _ in range(5)]
    assert [step[3] for step in steps] == [False] * 4 + [True]
    await env.close()


def test_make_vec_truncates(limited: str) -> None:
    with make_vec(limited, 2) as vec:
        vec.reset(seed=0)
        ends = [vec.step(["x", "x"]).truncated.tolist() for _ in range(10)]
    assert ends == ([[False, False]] * 4 + [[True, True]]) * 2


def test_rollouts_truncate(limited: str) -> None:
    played = collect(limited, "random", n=2)
    assert [(len(trajectory.turns), trajectory.stop) for trajectory in played] == [(5, StopReason.TURN_LIMIT)] * 2


def test_the_smallest_declared_limit_applies() -> None:
    registry.register("t:Smaller-v0", OnClass, max_turns=3)
    registry.register("t:Larger-v0", OnClass, max_turns=9)
    try:
        assert turns(palestra.make("t:Smaller-v0")) == 3
        assert turns(palestra.make("t:Larger-v0")) == 5
    finally:
        registry.unregister("t:Smaller-v0")
        registry.unregister("t:Larger-v0")


def test_a_game_that_counts_its_turns_keeps_to_a_registered_limit_too() -> None:
    entry = "palestra.suite.games.guess_the_number:GuessTheNumber"
    registry.register("t:Guess-v0", entry, kwargs={"low": 1, "high": 50}, max_turns=2)
    try:
        env = palestra.make("t:Guess-v0")
        env.reset(seed=0)
        assert [env.step("\\boxed{99}").truncated for _ in range(2)] == [False, True]
    finally:
        registry.unregister("t:Guess-v0")
    longer = palestra.make("game:GuessTheNumber-v0-easy", max_turns=6)
    longer.reset(seed=0)
    assert [longer.step("\\boxed{99}").truncated for _ in range(6)] == [False] * 5 + [True]


def test_the_end_of_the_task_is_not_a_truncation() -> None:
    env = palestra.make(f"{__name__}:Ends")
    env.reset(seed=0)
    assert env.step("x")[2:4] == (True, False)


async def test_forks_keep_the_count() -> None:
    env = palestra.make(f"{__name__}:OnClass")
    env.reset(seed=0)
    for _ in range(3):
        env.step("x")
    twin = env.fork()
    assert [twin.step("x").truncated for _ in range(2)] == [env.step("x").truncated for _ in range(2)] == [False, True]
    waiting = palestra.make_async(f"{__name__}:WaitingOnClass")
    await waiting.reset(seed=0)
    for _ in range(3):
        await waiting.step("x")
    other = await waiting.fork()
    assert [(await other.step("x")).truncated for _ in range(2)] == [False, True]


async def test_without_a_limit_nothing_stands_between() -> None:
    plain = palestra.make_async(f"{__name__}:Endless")
    assert isinstance(plain, Direct)
    await plain.reset(seed=0)
    author = plain.unwrapped
    assert plain.env.step == author.step
    waiting = palestra.make_async(f"{__name__}:Waiting")
    await waiting.reset(seed=0)
    assert waiting.step == waiting.unwrapped.step
    game = palestra.make_async("game:GuessTheNumber-v0-easy")
    assert isinstance(game, Direct)
    assert game.env is game.unwrapped


def test_what_passes_on_closes_what_is_inside() -> None:
    class Closing(Endless):
        closed = 0

        def close(self) -> None:
            Closing.closed += 1

    Limited(Closing(), 3).close()
    assert Closing.closed == 1


def test_a_meter_counts_the_steps_and_bytes_of_one_episode() -> None:
    assert (MOST_STEPS, MOST_BYTES) == (10_000, 67_108_864)
    meter = LoopMeter("far away", 3, 10)
    for _ in range(2):
        meter.received(4)
        meter.received(6)
        with pytest.raises(EnvError, match="far away sent more than 10 bytes in one episode"):
            meter.received(1)
        meter.stepped()
        meter.stepped()
        with pytest.raises(EnvError, match="far away did not end the episode in 3 steps"):
            meter.stepped()
        meter.begin()


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(EnvError, match="max_turns=0"):
        palestra.make(f"{__name__}:Zero").reset(seed=0)
    with pytest.raises(UsageError, match="at least 1"):
        registry.register("t:Zero-v0", Endless, max_turns=0)


def test_a_registered_limit_counts_the_turns_outside_the_wrappers() -> None:
    registry.register("t:Tools-v0", InInfo, max_turns=3, wrappers=[_Twice])
    try:
        assert turns(palestra.make("t:Tools-v0")) == 3
        assert len(collect("t:Tools-v0", "random", n=1)[0].turns) == 3
    finally:
        registry.unregister("t:Tools-v0")


class _Twice(palestra.Wrapper):
    """Every action of the agent is one step of the environment, and then one that only the wrapper answers."""

    async def reset(self, **task: Any) -> tuple[Any, dict[str, Any]]:
        self.own = False
        return await super().reset(**task)

    async def step(self, action: str) -> Step:
        self.own = not self.own
        return await super().step(action) if self.own else Step("", 0.0, False, False, {})
