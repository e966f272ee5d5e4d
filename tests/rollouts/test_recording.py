"""A rollout that is kept, killed and taken up again."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.core import Conversation
from palestra.durable import Inside
from palestra.errors import PolicyError, UsageError
from palestra.rollouts import RolloutOptions, collect, read_trajectories
from palestra.rollouts.recording import RolloutConfig, audit, recorded
from palestra.rollouts.resuming import resume
from palestra.trajectory import Completion, Finish, Task
from palestra.wrappers import TurnLimit
from tests.cluster.chaos import digest

GUESS = "game:GuessTheNumber-v0-easy"


async def test_each_episode_is_there_once_over_any_number_of_interruptions(tmp_path: Path) -> None:
    for wanted in (7, 11, 1000):
        stream = recorded(tmp_path, GUESS, "random", RolloutOptions(n=30, group_size=2, seed=5, concurrency=8))
        count = 0
        async for _ in stream:
            count += 1
            if count == wanted:
                break
        await stream.aclose()
    found = audit(tmp_path)
    assert found.sound
    assert found.ledger.issued == found.ledger.consumed == 60
    expected = collect(GUESS, "random", n=30, group_size=2, seed=5, progress=False)
    assert digest(list(read_trajectories(tmp_path / "trajectories.jsonl"))) == digest(expected)


async def test_the_audit_finds_what_is_wrong(tmp_path: Path) -> None:
    assert len([t async for t in recorded(tmp_path, GUESS, "random", RolloutOptions(n=5))]) == 5
    assert audit(tmp_path).sound
    path = tmp_path / "trajectories.jsonl"
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([first, first, *others]))
    assert len(audit(tmp_path).doubled) == 1
    path.write_bytes(b"".join(others))
    assert len(audit(tmp_path).missing) == 1
    (tmp_path / "ledger").write_bytes(b"".join((tmp_path / "ledger").read_bytes().splitlines(keepends=True)[:-1]))
    path.write_bytes(b"".join([first, *others]))
    assert not audit(tmp_path).sound


@pytest.mark.slow
def test_the_command_goes_on_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "palestra.cli", "rollout", "random", "-e", "game:Sudoku-v0-easy", "-n", "400"]
    command += ["-o", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    path = tmp_path / "run" / "trajectories.jsonl"
    until = time.monotonic() + 300
    while not (path.exists() and path.stat().st_size > 20_000) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "issued 400 = consumed 400 + failed 0 + dropped 0: each exactly once" in done.stdout
    expected = collect("game:Sudoku-v0-easy", "random", n=400, deadline=600.0, progress=False)
    assert digest(list(read_trajectories(path))) == digest(expected)


@pytest.mark.parametrize(
    ("envs", "policy", "options", "told"),
    [
        (GUESS, "oracle", {}, 'policy was "random" and is now "oracle"'),
        ("math:Sums", "random", {}, "envs was "),
        ([GUESS, "math:Sums"], "random", {}, "envs was "),
        (GUESS, "random", {"n": 3}, "n was 4 and is now 3"),
        (GUESS, "random", {"seed": 2}, "seed was 0 and is now 2"),
        (GUESS, "random", {"group_size": 2}, "group_size was 1 and is now 2"),
        (GUESS, "random", {"max_turns": 2}, "max_turns was none and is now 2"),
        (GUESS, "random", {"wrappers": [partial(TurnLimit, turns=2)]}, "wrappers was "),
        ([Task(GUESS, 1)], "random", {}, "envs was "),
    ],
)
async def test_another_rollout_is_refused_and_changes_nothing(
    tmp_path: Path, envs: Any, policy: str, options: dict[str, Any], told: str
) -> None:
    assert [t async for t in recorded(tmp_path, GUESS, "random", RolloutOptions(n=4))]
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(UsageError, match="holds another rollout: ") as refused:
        assert [t async for t in recorded(tmp_path, envs, policy, RolloutOptions(**{"n": 4, **options}))]
    assert told in str(refused.value)
    assert "choose another folder (--out)" in str(refused.value)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


async def test_more_tasks_of_the_same_rollout_are_added(tmp_path: Path) -> None:
    assert len([t async for t in recorded(tmp_path, GUESS, "random", RolloutOptions(n=3))]) == 3
    assert len([t async for t in recorded(tmp_path, GUESS, "random", RolloutOptions(n=5, concurrency=1, deadline=9.0))]) == 2
    assert audit(tmp_path).sound
    expected = collect(GUESS, "random", n=5, progress=False)
    assert digest(list(read_trajectories(tmp_path / "trajectories.jsonl"))) == digest(expected)


async def test_given_tasks_are_compared_by_their_hash(tmp_path: Path) -> None:
    tasks = [Task(GUESS, seed) for seed in range(3)]
    assert len([t async for t in recorded(tmp_path, iter(tasks), "random", RolloutOptions())]) == 3
    assert not [t async for t in recorded(tmp_path, tasks, "random", RolloutOptions())]
    with pytest.raises(UsageError, match="panel was"):
        assert [t async for t in recorded(tmp_path, tasks[:2], "random", RolloutOptions())]


async def test_a_data_file_that_changed_makes_another_rollout(tmp_path: Path) -> None:
    file, folder = tmp_path / "questions.jsonl", tmp_path / "run"
    file.write_text('{"question": "1 + 1?", "answer": "2"}\n{"question": "2 + 2?", "answer": "4"}\n')
    assert (
        len([trajectory async for trajectory in recorded(folder, f"data:{file}", lambda text: "2", RolloutOptions(n=1))]) == 1
    )
    assert (
        len([trajectory async for trajectory in recorded(folder, f"data:{file}", lambda text: "2", RolloutOptions(n=2))]) == 1
    )
    file.write_text(file.read_text().replace("+", "*"))
    with pytest.raises(UsageError, match=r"questions\.jsonl has changed since the run began"):
        assert [trajectory async for trajectory in recorded(folder, f"data:{file}", lambda text: "2", RolloutOptions(n=3))]


def test_the_command_takes_patterns_and_n_tasks_of_each(tmp_path: Path) -> None:
    """``rollout -e "game:*-easy"`` used to be an unknown environment, and ``-n`` the number in all."""
    run = tmp_path / "run"
    done = CliRunner().invoke(
        app, ["rollout", "random", "-e", "game:GuessTheNumber-v0-*", "math:Sums", "-n", "3", "-o", str(run)]
    )
    assert done.exit_code == 0, done.output
    assert "playing 12 episodes" in done.output
    played = Counter(trajectory.task.env for trajectory in read_trajectories(run / "trajectories.jsonl"))
    levels = {f"game:GuessTheNumber-v0-{level}": 3 for level in ("easy", "hard", "random")}
    assert played == {**levels, "math:Sums": 3}


def test_the_config_names_the_server_and_not_the_password() -> None:
    config = RolloutConfig.of(["remote:http://me:hidden-word@gym.example:8000#math:Sums"], "random", RolloutOptions(n=1))
    assert config.envs == ("remote:http://***@gym.example:8000#math:Sums",)


async def test_what_cannot_be_played_leaves_no_folder(tmp_path: Path) -> None:
    for envs, options in (("game:Nonesuch-v0", {"n": 1}), ("none:*", {"n": 1})):
        with pytest.raises(UsageError):
            assert [t async for t in recorded(tmp_path / "run", envs, "random", RolloutOptions(**options))]  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("lost", [1, 3, 5])
async def test_a_ledger_ahead_of_the_trajectories_is_rewound_and_said_so(tmp_path: Path, lost: int) -> None:
    """A power loss can keep the ledger's lines and lose the last trajectories."""
    path = tmp_path / "trajectories.jsonl"
    assert len([t async for t in recorded(tmp_path, GUESS, "random", RolloutOptions(n=5))]) == 5
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lost]))
    with pytest.warns(UserWarning, match=f"lists {lost} episodes whose trajectories are not on the disk"):
        assert len([t async for t in recorded(tmp_path, GUESS, "random", RolloutOptions(n=5))]) == lost
    assert audit(tmp_path).sound
    assert list(tmp_path.glob("ledger.aside-*"))
    assert digest(list(read_trajectories(path))) == digest(collect(GUESS, "random", n=5, progress=False))


class Unsteady:
    """While ``down``, it fails every third task, by an error or by a spent budget. Then it plays on."""

    def __init__(self, cut: bool = False) -> None:
        self.down, self.cut = True, cut

    async def act(self, conversation: Conversation) -> Completion:
        if not self.down or conversation.task.seed % 3:
            return Completion("\\boxed{5}")
        if self.cut:
            return Completion("", Finish.BUDGET)
        raise PolicyError("the endpoint is down")


@pytest.mark.parametrize("cut", [False, True], ids=["failed", "cut by a budget"])
async def test_a_resumed_rollout_plays_the_episodes_again_that_did_not_end_well(tmp_path: Path, cut: bool) -> None:
    tasks, policy = [Task(GUESS, seed) for seed in range(6)], Unsteady(cut)
    first = [trajectory async for trajectory in recorded(tmp_path, tasks, policy, RolloutOptions(group_size=2))]
    assert sum(trajectory.stop.failed for trajectory in first) == (0 if cut else 4)
    assert (audit(tmp_path).ledger.failed, audit(tmp_path).sound) == (4, True)
    policy.down = False
    again = [trajectory async for trajectory in recorded(tmp_path, tasks, policy, RolloutOptions(group_size=2))]
    assert {trajectory.task.seed for trajectory in again} == {0, 3}
    assert not any(trajectory.stop.failed for trajectory in read_trajectories(tmp_path / "trajectories.jsonl"))
    assert len(list(read_trajectories(tmp_path / "failed.jsonl"))) == 4
    found = audit(tmp_path)
    assert (found.sound, found.ledger.issued, found.ledger.consumed, found.ledger.failed) == (True, 12, 12, 0)
    assert not [trajectory async for trajectory in recorded(tmp_path, tasks, policy, RolloutOptions(group_size=2))]


async def test_a_kill_after_failed_episodes_were_set_aside_loses_none(tmp_path: Path) -> None:
    tasks, policy = [Task(GUESS, seed) for seed in range(6)], Unsteady()
    assert len([trajectory async for trajectory in recorded(tmp_path, tasks, policy, RolloutOptions())]) == 6
    resume(Inside(tmp_path) / "trajectories.jsonl", lambda trajectory: trajectory)  # as far as the killed process came
    policy.down = False
    assert len([trajectory async for trajectory in recorded(tmp_path, tasks, policy, RolloutOptions())]) == 2
    assert audit(tmp_path).sound
