"""Two processes on one folder or file: one writes, the other gets an error, and no line is doubled or lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from palestra.durable.ledger import read_ledger

EPISODES = 60


@pytest.mark.timeout(600)
@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(60, marks=pytest.mark.full)])
def test_two_commands_at_once_never_write_into_one_place(tmp_path: Path, count: int) -> None:
    command = [sys.executable, str(Path(__file__).with_name("two_writers.py")), str(tmp_path), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "500"}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr
    tries = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(tries) == count
    for one in tries:
        (first, _), (second, told) = sorted(one["ended"])
        assert first == 0, one
        assert one["doubled"] == 0, one
        assert one["episodes"] == EPISODES, one
        # Commands that do not play may also come one after the other: a file is written anew, a folder is refused.
        assert second == 2 or one["command"] not in ("rollout", "eval", "regrade", "import"), one
        if second:
            told = [line for line in told.splitlines() if "Error" in line]
            assert len(told) == 1, one
            assert "is in use by " in told[0] or one["command"] in ("regrade", "import"), told
            assert "choose another" in told[0]


RECIPE = """
steps = 4
checkpoint_every = 2

[model]
path = "{model}"

[envs]
"game:GuessTheNumber-v0-easy" = 1.0

[play]
tasks = 2
group_size = 2
max_tokens = 8

[learner]
learning_rate = 1e-3
"""


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(400)
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.full)])
def test_two_trainings_at_once_never_mix_their_steps(tmp_path: Path, tiny_model: Path, count: int) -> None:
    from palestra.training.record import read_metrics

    (tmp_path / "guess.toml").write_text(RECIPE.format(model=tiny_model))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "500", "OMP_NUM_THREADS": "1"}
    for number in range(count):
        run = tmp_path / f"run-{number}"
        command = [sys.executable, "-m", "palestra.cli", "train", str(tmp_path / "guess.toml"), "--no-check", "--out", str(run)]
        both = [
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            for _ in range(2)
        ]
        ended = sorted((process.wait(), said) for process, said in [(one, one.communicate()[0]) for one in both])
        assert ended[0][0] == 0, ended
        # 0: it began after the other had ended, and found nothing left to do.
        assert ended[1][0] == 0 or (ended[1][0] == 2 and "is in use by process " in ended[1][1]), ended
        assert [line["step"] for line in read_metrics(run)] == [1, 2, 3, 4]
        audit = read_ledger(run / "ledger").audit()
        assert audit.balanced
        assert audit.issued == 16
