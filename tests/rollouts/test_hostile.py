"""Hostile environments and policies, through every path that plays them: they cost their own episodes and nothing else.

Each kind of ``hostile`` plays beside innocent episodes. The fast group takes a sample; the rest is marked ``full``.
"""

import asyncio
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

import palestra
from palestra import Task, Trajectory
from palestra.foundation.encoding import decode_json, encode_json
from palestra.rollouts import RolloutOptions, read_trajectories
from palestra.rollouts.recording import audit, recorded
from tests.rollouts.hostile import ENVS, INNOCENT, POLICIES, env_task, innocent_task

KINDS = [("env", name) for name in ENVS] + [("policy", name) for name in POLICIES]
SAMPLED = 23
"""One kind of this many is in the fast group."""
LATEST = 11.0
"""Seconds for all episodes of a kind: the deadline and ten seconds."""

pytestmark = [
    # Warnings of Python about what strangers leave behind, such as a coroutine that nobody awaited.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::UserWarning", "ignore::RuntimeWarning"
    )
]


def sampled(kinds: list[Any], each: int = SAMPLED) -> list[Any]:
    return [kind if number % each == 0 else pytest.param(kind, marks=pytest.mark.full) for number, kind in enumerate(kinds)]


@pytest.fixture(autouse=True)
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["palestra.rollouts.driving"], "GRACE", 0.05)


def parts(kind: tuple[str, str]) -> tuple[list[Task], Any]:
    """Three hostile episodes among three innocent ones, and their policy."""
    side, name = kind
    if side == "env":
        return [
            task for seed in range(3) for task in (innocent_task(2 * seed), env_task(name, 2 * seed + 1))
        ], lambda text: "act"
    return [innocent_task(seed) for seed in range(6)], POLICIES[name]()


def is_innocent(trajectory: Trajectory, kind: tuple[str, str]) -> bool:
    return trajectory.task.env == INNOCENT and (kind[0] == "env" or trajectory.task.seed % 2 == 0)


def assert_nothing_else_is_touched(played: list[Trajectory], kind: tuple[str, str]) -> None:
    assert {trajectory.group for trajectory in played} == set(range(6))
    for trajectory in played:
        if is_innocent(trajectory, kind):
            assert (trajectory.reward, trajectory.success, trajectory.failures) == (1.0, True, ())
        elif trajectory.stop.failed:
            assert trajectory.failures[-1].message
            assert trajectory.reward is None
        else:
            assert -1e9 <= trajectory.reward <= 1e9  # type: ignore[operator]
        assert decode_json(encode_json(trajectory), Trajectory).stop is trajectory.stop


async def all_of(stream: Any) -> list[Trajectory]:
    return [trajectory async for trajectory in stream]


@pytest.mark.parametrize("kind", sampled(KINDS), ids=str)
def test_a_recorded_rollout_can_be_read_and_resumed(kind: tuple[str, str], tmp_path: Path) -> None:
    options, began = RolloutOptions(deadline=0.5, retries=0), monotonic()
    for _ in range(2):  # the second run plays the failed episodes again
        tasks, policy = parts(kind)
        asyncio.run(all_of(recorded(tmp_path, tasks, policy, options, name="hostile")))
        findings = audit(tmp_path)
        assert (findings.sound, findings.ledger.issued, findings.ledger.open) == (True, 6, 0)
        assert_nothing_else_is_touched(list(read_trajectories(tmp_path / "trajectories.jsonl")), kind)
    assert monotonic() - began < 2 * LATEST


@pytest.mark.parametrize("kind", sampled(KINDS), ids=str)
def test_an_evaluation_keeps_the_scores_of_the_others(kind: tuple[str, str], tmp_path: Path) -> None:
    for _ in range(2):
        tasks, policy = parts(kind)
        report = palestra.evaluate(tasks, policy, deadline=0.5, retries=0, out=tmp_path / "run")
        assert report.stopped == ""
        written = list(read_trajectories(tmp_path / "run" / "trajectories.jsonl"))
        assert_nothing_else_is_touched(written, kind)
    assert palestra.evaluate(tasks, policy, deadline=0.5, retries=0).stopped == ""
