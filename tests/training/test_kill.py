"""SIGKILL at a sample of points; ``kill_run`` does all of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]


@pytest.mark.gate
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_run_that_is_killed_and_resumed_ends_in_the_same_bits() -> None:
    # In a process of its own, which forks: nothing else may have computed in it.
    command = [sys.executable, "-m", "tests.training.kill_run", "--points", "10", "--outside", "2"]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=390)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 kills, 12 resumed to the same bits" in done.stdout
