"""Several attempts at one task: what an attempt pays, what the player sees between two, and when the episode ends."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.trajectory import Content, Image, Task, Text
from palestra.wrappers.attempts import AttemptBoundary, Attempts, split_attempts

PICTURE = Image(b"pixels", "image/png")


class Script(AsyncEnv):
    """Plays the same steps in every attempt, or those of the attempt."""

    def __init__(self, *attempts: Sequence[Step], first: Content = "start") -> None:
        self.attempts, self.first = attempts, first
        self.tasks: list[Task | None] = []

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, Mapping[str, Any]]:  # type: ignore[override]
        await super().reset(seed=seed, task=task)
        self.tasks.append(task)
        self.left = list(self.attempts[min(len(self.tasks), len(self.attempts)) - 1])
        return self.first, {"max_turns": 4, "opening": "rules", "kept": len(self.tasks)}

    async def step(self, action: str) -> Step:
        return self.left.pop(0)


def ended(observation: Content, reward: float, success: bool | None, *, truncated: bool = False) -> Step:
    info = {} if success is None else {"success": success}
    return Step(observation, reward, not truncated, truncated, info)


GOING, LOST, WON = Step("go on", 0.25, False, False, {}), ended("lost", 0.5, False), ended("won", 1.0, True)


async def played(env: Attempts) -> list[Step]:
    steps = [await env.step("a")]
    while not (steps[-1].terminated or steps[-1].truncated):
        steps.append(await env.step("a"))
    return steps


async def test_a_failed_attempt_pays_nothing_and_the_task_begins_again() -> None:
    inner = Script([GOING, GOING, LOST], [GOING, WON])
    env = Attempts(inner, 3)
    observation, info = await env.reset(seed=7)
    assert (observation, info) == ("start", {"opening": "rules", "kept": 1})
    steps = await played(env)
    assert [step.reward for step in steps] == [0.25, 0.25, -0.5, 0.25, 1.0]
    assert sum(step.reward for step in steps) == 1.25, "the reward of the last attempt"
    line = "[Attempt 1 of 3 ended without success. The same task begins again.]"
    assert steps[2] == Step(f"lost\n\n{line}\n\nstart", -0.5, False, False, {"kept": 2})
    assert steps[-1].info == {"success": True, "metrics": {"attempts": 2}}
    assert inner.tasks[0] is None
    assert inner.tasks[1] == inner.task


async def test_the_last_attempt_ends_the_episode_and_a_new_episode_has_all_of_them() -> None:
    env = Attempts(Script([GOING, LOST]), 2)
    for _ in range(2):
        await env.reset(seed=1)
        steps = await played(env)
        assert [step.reward for step in steps] == [0.25, -0.25, 0.25, 0.5]
        assert steps[-1].info["metrics"] == {"attempts": 2}


async def test_each_failed_attempt_takes_back_what_it_alone_has_paid() -> None:
    env = Attempts(Script([GOING, LOST], [GOING, GOING, LOST], [GOING, WON]), 3)
    await env.reset(seed=1)
    assert [step.reward for step in await played(env)] == [0.25, -0.25, 0.25, 0.25, -0.5, 0.25, 1.0]


@pytest.mark.parametrize(
    ("end", "attempts"),
    [
        (ended("cut", 0.0, None, truncated=True), 2),
        (ended("cut", 0.0, True, truncated=True), 2),
        (ended("over", 0.0, False), 2),
        (ended("over", 0.0, None), 1),
        (ended("over", 0.0, True), 1),
    ],
)
async def test_what_counts_as_a_failure(end: Step, attempts: int) -> None:
    env = Attempts(Script([end]), 2)
    await env.reset(seed=1)
    assert (await played(env))[-1].info["metrics"]["attempts"] == attempts


async def test_metrics_of_the_environment_are_kept() -> None:
    env = Attempts(Script([Step("over", 0.0, True, False, {"metrics": {"moves": 3}})]))
    await env.reset(seed=1)
    assert (await played(env))[0].info["metrics"] == {"moves": 3, "attempts": 1}


@pytest.mark.parametrize(
    ("last", "first"), [("lost", (PICTURE, Text("b"))), ((Text("lo"), PICTURE), "start"), ("lost", "start")]
)
async def test_an_observation_between_two_attempts_is_taken_apart(last: Content, first: Content) -> None:
    env = Attempts(Script([ended(last, 0.0, False)], first=first), 2)
    await env.reset(seed=1)
    boundary = split_attempts((await env.step("a")).observation)
    assert isinstance(boundary, AttemptBoundary)
    assert boundary.attempt == 1
    assert boundary.start == first or boundary.start == (Text("start"),)
    assert boundary.outcome.startswith("lo")


@pytest.mark.parametrize("observation", ["start", "", (PICTURE,), (Text("[Attempt 1 of 2]"), PICTURE)])
def test_another_observation_is_no_boundary(observation: Content) -> None:
    assert split_attempts(observation) is None


def test_at_least_one_attempt() -> None:
    Attempts(Script([WON]), 1)
    with pytest.raises(UsageError, match="at least 1 attempt, got 0"):
        Attempts(Script([WON]), 0)


async def test_there_are_three_attempts_unless_another_number_is_given() -> None:
    env = Attempts(Script([LOST]))
    await env.reset(seed=1)
    assert (await played(env))[-1].info["metrics"] == {"attempts": 3}
