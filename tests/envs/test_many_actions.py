"""A fault is counted, and does not end the count."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.envs.many_actions import many_actions

import palestra
from palestra import Env, Step, Task
from palestra.registry import unregister

ENV = "tests:Fragile-v0"


class Fragile(Env):
    """Breaks at the action ``break``, and pays too much for ``pay``."""

    reward_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "", {}

    def step(self, action: str) -> Step:
        if action == "break":
            raise RuntimeError("broken")
        return Step("", 2.0 if action == "pay" else 0.0, action == "end", False, {})


@pytest.fixture(autouse=True)
def fragile() -> Iterator[None]:
    palestra.register(ENV, Fragile)
    yield
    unregister(ENV)


def test_faults_are_counted_and_are_not_actions() -> None:
    actions = iter(["go", "end", "break", "go", "pay", "go"])
    played = many_actions(ENV, 6, lambda *_: next(actions))
    assert (played.actions, played.episodes) == (4, 4)
    assert played.faults == [
        f"{ENV}, episode 2: RuntimeError: broken",
        f"{ENV}, episode 3: AssertionError: the reward 2.0 is not between 0.0 and 1.0",
    ]
