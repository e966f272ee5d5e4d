"""The contract of every bridge that hands tokens to a trainer: one suite, run by each bridge's own test file.

A test file makes a fixture ``bridge`` from its subclass of ``Bridge``, and imports the tests that hold for it by name.
Nothing here imports another framework, nor torch.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest

from palestra import Task, Trajectory
from tests.bridges.abandoned import EPISODES, HELD, Silent, all_closed
from tests.bridges.bridging import (
    CONTEXT,
    MAX_TOKENS,
    NARROW,
    ROUGH,
    WHOLE,
    Forgetting,
    Row,
    assert_rough,
    compare,
    expected,
    rough_tasks,
    run,
)

FRAMEWORK = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]
"""The marks of a bridge's tests. The warnings are the framework's own."""


class Received(NamedTuple):
    """What a trainer received of an episode."""

    rows: Sequence[Row] | Callable[[Trajectory], Sequence[Row]]
    """A sequence per segment, or how to take them apart with the trajectory beside them."""
    reward: float | None = None
    """The reward of the episode, unless the framework keeps none beside the tokens."""


class Bridge:
    """One framework with a scripted model behind it."""

    context = CONTEXT
    """The context length of the episodes. With ``NARROW``, some of them overflow."""
    failures = True
    """Whether the framework goes on after an episode that failed, which it then receives as ``None`` or raises."""
    renderer: Any = Forgetting
    """Makes the renderer whose episodes have several segments."""
    apart, max_tokens = 1 / 3, MAX_TOKENS

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def receive(self, tasks: Sequence[Task], renderer: Any = None) -> Sequence[Received | None]:
        """Play ``tasks`` with the framework. Return what its trainer receives of each, and ``None`` for a failed one."""
        raise NotImplementedError

    def abandon(self, tasks: Sequence[Task], silent: Silent) -> Any:
        """A coroutine in which the framework begins ``tasks`` with a model that never answers, and leaves them."""
        raise NotImplementedError

    def rough(self, played: Sequence[Trajectory]) -> None:
        """Check that the episodes are of the kinds that this framework has to carry."""
        assert_rough(played, failures=self.failures, overflow=self.context == NARROW)

    def expected(self, tasks: Sequence[Task], renderer: Any = None) -> list[Trajectory]:
        """What Palestra's own loop records of ``tasks``."""
        limits: dict[str, Any] = {"context_length": self.context, "max_tokens": self.max_tokens}
        return expected(tasks, self.tokenizer, apart=self.apart, renderer=renderer, **limits)

    def check(self, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
        """Check what this framework alone promises."""


def _same(bridge: Bridge, received: Sequence[Received | None], played: Sequence[Trajectory]) -> None:
    for got, one in zip(received, played, strict=True):
        assert (got is None) == one.stop.failed, one.failures
        if got is None:
            continue
        compare(got.rows(one) if callable(got.rows) else got.rows, one)
        assert got.reward is None or got.reward == pytest.approx(one.reward, abs=1e-6)
    bridge.check(received, played)


def test_two_hundred_episodes_arrive_token_by_token(bridge: Bridge) -> None:
    tasks = rough_tasks(200, ROUGH if bridge.failures else WHOLE)
    played = bridge.expected(tasks)
    bridge.rough(played)
    _same(bridge, bridge.receive(tasks), played)


def test_every_segment_arrives_token_by_token(bridge: Bridge) -> None:
    tasks, renderer = rough_tasks(60, ROUGH if bridge.failures else WHOLE), bridge.renderer(bridge.tokenizer)
    played = bridge.expected(tasks, renderer)
    assert max(len(one.segments) for one in played) > 2
    _same(bridge, bridge.receive(tasks, renderer), played)


def test_a_thousand_abandoned_episodes_leave_nothing(bridge: Bridge) -> None:
    bridge.receive(rough_tasks(4, WHOLE))  # loads what the framework loads once
    with all_closed():
        run(bridge.abandon([Task(HELD, seed) for seed in range(EPISODES)], Silent()))
