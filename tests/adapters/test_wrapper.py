"""Wrappers around plain environments, and forks through every adapter and wrapper."""

import copy
import threading
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import palestra
from palestra import AsyncEnv, Env, Step, Task, Wrapper, as_async
from palestra.adapters import AsyncLimited, Blocking, Direct, Guarded, Limited
from palestra.adapters.passing import Passing
from palestra.errors import EpisodeOver, Unsupported, UsageError
from palestra.tools import tool
from palestra.trajectory import Content, ToolResult
from palestra.wrappers import KeepHistory, RecordTrajectory, TokenLimit, TurnLimit, UseTools
from palestra.wrappers.rewording import Reword
from tests.leftovers import nothing_left

GUESS = "game:GuessTheNumber-v0-easy"


def test_a_wrapper_around_a_made_environment_keeps_the_blocking_interface() -> None:
    with nothing_left():
        env: Any = TurnLimit(palestra.make(GUESS), 2)  # type: ignore[arg-type]
        assert isinstance(env, Guarded)
        env.reset(seed=0)
        assert env.task == Task(GUESS, 0)
        assert not env.step("\\boxed{99}").truncated
        step = env.step("\\boxed{99}")
        assert step.truncated
        assert step.info["stop_reason"] == "turn_limit"
        with pytest.raises(EpisodeOver, match=r"ended at turn 2 \(truncated\)"):
            env.step("\\boxed{99}")
        env.close()


async def test_as_async_finds_the_async_environment_behind_make() -> None:
    made = palestra.make("tests.test_core:AsyncDice")
    assert not isinstance(as_async(made), Direct)
    made.close()


def test_what_is_no_environment_is_refused_with_what_to_write() -> None:
    with pytest.raises(
        TypeError, match=r"TurnLimit wraps an environment, got a str: write TurnLimit\(palestra.make\(id\), …\)"
    ):
        TurnLimit(GUESS, 3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"got the tool 'double': write UseTools\(palestra.make\(id\), \[tool\]\), or"):
        UseTools(double)  # type: ignore[arg-type, call-arg]


@pytest.mark.parametrize("kind", [Wrapper, Passing, Direct, Blocking])
def test_an_adapter_that_is_still_being_unpickled_lacks_attributes(kind: type) -> None:
    with pytest.raises(AttributeError):
        _ = object.__new__(kind).own_attribute


@tool
async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


CALL = '<tool_call>{"name": "double", "arguments": {"number": 4}}</tool_call>'
ACTIONS = st.lists(st.sampled_from(["\\boxed{1}", "\\boxed{5}", "\\boxed{9}", "guess: 3", "nonsense", CALL]), max_size=5)


class Noisy(Wrapper):
    """Has a generator and a container of its own."""

    def __init__(self, env: palestra.AsyncEnv) -> None:
        super().__init__(env)
        self.seen: list[str] = []

    def observation(self, observation: Content) -> Content:
        self.seen.append(str(observation))
        return f"{observation} ({len(self.seen)})"


LAYERS: dict[str, Callable[[Any], Any]] = {
    "TurnLimit": partial(TurnLimit, turns=3),
    "AsyncLimited": AsyncLimited,
    "TokenLimit": partial(TokenLimit, tokens=400),
    "KeepHistory": partial(KeepHistory, turns=1),
    "Reword": partial(Reword, move="guess: {}"),
    "RecordTrajectory": partial(RecordTrajectory, sink=repr),
    "UseTools": partial(UseTools, tools=[double]),
    "Noisy": Noisy,
}
BASES: dict[str, Callable[[], Env]] = {
    "Guarded, Limited": lambda: palestra.make(GUESS),
    "Blocking, Direct": lambda: Blocking(palestra.make_async(GUESS)),
    "Guarded, Blocking, Direct, Limited": lambda: Guarded(Blocking(Direct(Limited(palestra.make(GUESS), 3))), GUESS),
}


def play(env: Env, actions: list[str]) -> list[Any]:
    seen: list[Any] = []
    for action in actions:
        try:
            step = env.step(action)
        except EpisodeOver:
            seen.append("over")
            break
        seen.append(step)
        if step.terminated or step.truncated:
            break
    return seen


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(BASES)), st.lists(st.sampled_from(list(LAYERS)), max_size=4), ACTIONS, ACTIONS, ACTIONS)
@example("Guarded, Limited", ["KeepHistory", "Noisy"], ["\\boxed{99}"], ["\\boxed{98}"], ["\\boxed{97}", "\\boxed{96}"])
@example("Blocking, Direct", ["TokenLimit", "UseTools"], [CALL], [CALL, CALL], [CALL, "\\boxed{99}"])
def test_a_fork_plays_on_identically_and_independently(
    base: str, layers: list[str], before: list[str], one: list[str], other: list[str]
) -> None:
    def started() -> Env:
        env: Any = BASES[base]()
        for layer in layers:
            env = LAYERS[layer](env)
        env.reset(task=Task(GUESS, 3, params={"x": 1}))
        play(env, before)
        return env  # type: ignore[no-any-return]

    original, first, second = started(), started(), started()
    twin = original.fork()
    assert play(twin, other) == play(first, other), "the fork plays like an environment that came the same way"
    assert play(original, one) == play(second, one), "what the fork did left no trace in the original"
    for env in (original, first, second, twin):
        env.close()


class Counter:
    """A tool with a state for each episode. ``forks`` says what a fork of it does."""

    name, description = "count", "Counts its calls."
    parameters: Mapping[str, Any] = MappingProxyType({"type": "object", "properties": {}})

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def for_episode(self, shared: Any) -> "Counter":
        return type(self)()

    async def __call__(self, **arguments: Any) -> ToolResult:
        self.count += 1
        return ToolResult(f"call {self.count}")


class Forkable(Counter):
    async def fork(self) -> Counter:
        return Forkable(self.count)


class Failing(Counter):
    async def fork(self) -> Counter:
        raise Unsupported("not now")


def test_tools_with_a_state_are_forked_with_their_episode_or_refused() -> None:
    count = '<tool_call>{"name": "count", "arguments": {}}</tool_call>'
    env: Any = UseTools(palestra.make(GUESS), [Forkable()])  # type: ignore[arg-type]
    env.reset(seed=0)
    env.step(count)
    twin = env.fork()
    assert ["call 2" in each.step(count).observation for each in (twin, env)] == [True, True]
    twin.close()
    env.close()
    with palestra.make(GUESS, wrappers=[partial(UseTools, tools=[Counter()])]) as stuck:
        stuck.reset(seed=0)
        with pytest.raises(Unsupported, match="the tool 'count' keeps state for it and has no fork"):
            stuck.fork()


class Locked(Wrapper):
    def __init__(self, env: palestra.AsyncEnv) -> None:
        super().__init__(env)
        self.lock = threading.Lock()


class Sharing(Locked):
    shared = ("lock",)


async def test_an_attribute_that_cannot_be_copied_is_named() -> None:
    for kind in (Locked, Sharing):
        env = kind(palestra.make_async(GUESS))
        await env.reset(seed=0)
        if kind is Sharing:
            twin: Any = await env.fork()
            assert twin.lock is env.lock
            continue
        with pytest.raises(Unsupported, match=r"Locked cannot be forked: its attribute 'lock'.*List it in `shared`"):
            await env.fork()


class Counting(AsyncEnv):
    def __init__(self) -> None:
        self.count = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "", {}

    async def step(self, action: str) -> Step:
        self.count += 1
        return Step("", 0.0, False, False, {})

    async def oracle(self) -> str:
        return str(self.count)

    async def fork(self) -> "Counting":
        return copy.deepcopy(self)


class Peeking(Wrapper):
    def __init__(self, env: AsyncEnv) -> None:
        super().__init__(env)
        self.inmost = env.unwrapped


async def test_what_a_wrapper_keeps_of_the_environment_belongs_to_the_fork_too() -> None:
    for env in (Peeking(AsyncLimited(Counting())), AsyncLimited(AsyncLimited(Counting()))):
        await env.reset(seed=0)
        await env.step("")
        twin: Any = await env.fork()
        await twin.step("")
        assert [await env.oracle(), await twin.oracle()] == ["1", "2"]
        assert getattr(twin, "inmost", twin.unwrapped) is twin.unwrapped


class Closing(Counting):
    open = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        Closing.open += 1
        return await super().reset(seed=seed, task=task)

    async def close(self) -> None:
        Closing.open -= 1

    async def fork(self) -> "Closing":
        Closing.open += 1
        return copy.deepcopy(self)


async def test_a_fork_that_fails_halfway_leaves_nothing_open() -> None:
    for env in (Locked(Closing()), UseTools(Closing(), [Failing()])):
        await env.reset(seed=0)
        with pytest.raises(Unsupported):
            await env.fork()
        assert Closing.open == 1
        await env.close()
