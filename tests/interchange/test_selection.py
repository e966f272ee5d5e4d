"""Which episodes are imitated, and which are preferred to which."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.interchange.selection import best_of_group, preference_pairs, solved
from palestra.rollouts import TrajectoryWriter
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn


def episode(reward: float | None, group: int = 0, member: int = 0, turns: int = 1, start: str = "begin") -> Trajectory:
    if reward is None:
        return Trajectory(Task("game:x", group), StopReason.DEADLINE, group=group, member=member)
    shares = [0.0] * (turns - 1) + [reward]
    seen = [start, *["and now?"] * (turns - 1)]
    played = tuple(
        Turn(observation, Completion(f"{member}.{k}"), share, {"success": reward >= 1.0})
        for k, (observation, share) in enumerate(zip(seen, shares, strict=True))
    )
    return Trajectory(Task("game:x", group), StopReason.TERMINATED, turns=played, group=group, member=member)


RUN = [
    episode(0.0, 0, 0),
    episode(1.0, 0, 1, turns=3),
    episode(1.0, 0, 2, turns=2),
    episode(None, 0, 3),
    episode(0.5, 1, 0),
    episode(0.5, 1, 1),
    episode(0.0, 2, 0),
    episode(None, 2, 1),
]


def test_the_best_try_at_each_task_is_imitated_if_it_is_worth_anything() -> None:
    assert [(trajectory.group, trajectory.member) for trajectory in best_of_group(RUN)] == [(0, 2), (1, 0)]
    assert [(trajectory.group, trajectory.member) for trajectory in best_of_group(RUN, least=0.5)] == [(0, 2)]
    assert [(trajectory.group, trajectory.member) for trajectory in solved(RUN)] == [(0, 1), (0, 2)]


def test_pairs_are_of_one_task_and_differ() -> None:
    (pair,) = preference_pairs(RUN)
    assert (pair.chosen.member, pair.rejected.member, pair.margin) == (2, 0, 1.0)
    assert preference_pairs(RUN, margin=1.0) == []
    with pytest.raises(UsageError):
        preference_pairs(RUN, margin=-1.0)


def test_steps_of_training_do_not_mix() -> None:
    later = [msgspec.structs.replace(episode(1.0, 0, 5), info={"step": 1}), episode(0.0, 0, 0)]
    assert preference_pairs(later) == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.one_of(st.none(), st.floats(-1, 1))), max_size=24),
    st.floats(0, 1),
    st.integers(1, 4),
)
def test_no_try_is_in_two_pairs_and_the_better_one_is_chosen(
    played: list[tuple[int, float | None]], margin: float, most: int
) -> None:
    run = [episode(reward, group, member) for member, (group, reward) in enumerate(played)]
    pairs = preference_pairs(run, margin=margin, most=most)
    used = [trajectory.member for pair in pairs for trajectory in pair]
    assert len(used) == len(set(used))
    assert all(pair.margin > margin and pair.chosen.task == pair.rejected.task for pair in pairs)
    for group in {pair.chosen.group for pair in pairs}:
        assert sum(pair.chosen.group == group for pair in pairs) <= most


def test_the_command_writes_what_trainers_read(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "run" / "trajectories.jsonl") as writer:
        for trajectory in RUN:
            writer.write(trajectory)

    def export(*options: str) -> list[dict[str, object]]:
        out = tmp_path / "out.jsonl"
        command = ["export", str(tmp_path / "run"), "-o", str(out), *options]
        assert CliRunner().invoke(app, command, catch_exceptions=False).exit_code == 0
        return [json.loads(line) for line in out.read_text().splitlines()]

    (pair,) = export("--to", "preferences")
    assert pair == {
        "prompt": [{"role": "user", "content": "begin"}],
        "chosen": [
            {"role": "assistant", "content": "2.0"},
            {"role": "user", "content": "and now?"},
            {"role": "assistant", "content": "2.1"},
        ],
        "rejected": [{"role": "assistant", "content": "0.0"}],
        "margin": 1.0,
    }
    assert len(export("--to", "openai", "--select", "best")) == 2
    assert len(export("--to", "openai", "--select", "solved")) == 2
    assert len(export("--to", "openai")) == 6
    command = ["import", str(tmp_path / "out.jsonl"), "--from", "preferences", "-o", str(tmp_path / "new")]
    with pytest.raises(UsageError, match="cannot be imported"):
        CliRunner().invoke(app, command, catch_exceptions=False)
