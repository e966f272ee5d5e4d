"""Two processes on one folder or file: one writes, the other gets an error, and no line is doubled or lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
