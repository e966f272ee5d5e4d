"""Harbor's own reader agrees with ours. ``PALESTRA_TEST_HARBOR`` names a Python that has the package harbor."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.envs.harbor.folders import BROKEN, CLASSES, SOUND, write

from palestra.envs.harbor.reading import read_task
from palestra.errors import SchemaError

STRICTER = {"empty-instruction", "negative-time", "new-version", "zero-cpus"}
"""Folders that Harbor's reader accepts, and ours does not."""
FILES = {"no-environment", "no-instruction", "no-tests", "step-unwritten"}
"""Faults outside of task.toml, which the referee does not look for."""


def ours(folder: Path) -> dict[str, Any] | None:
    try:
        config = read_task(folder).config
    except SchemaError:
        return None
    environment = config.environment
    return {
        "schema": config.schema,
        "network": environment.network,
        "memory": environment.memory_in_mb,
        "storage": environment.storage_in_mb,
        "os": environment.os,
        "env": environment.env,
        "steps": [step.name for step in config.steps],
        "verifier": [config.verifier.timeout_sec, config.verifier.env],
        "agent": [config.agent.timeout_sec, config.agent.user],
    }


def test_harbor_reads_the_same(tmp_path: Path) -> None:
    if "PALESTRA_TEST_HARBOR" not in os.environ:
        pytest.skip("PALESTRA_TEST_HARBOR names no Python")
    for name, case in {**SOUND, **BROKEN, **CLASSES}.items():
        write(tmp_path / name, case.files, case.toml)
    referee = [os.environ["PALESTRA_TEST_HARBOR"], str(Path(__file__).with_name("referee.py")), str(tmp_path)]
    done = subprocess.run(referee, check=False, capture_output=True, text=True, timeout=120, env={})
    assert done.returncode == 0, done.stderr
    theirs = json.loads(done.stdout)
    assert {name for name, found in theirs.items() if found != ours(tmp_path / name)} == STRICTER | FILES
    assert len(theirs) >= 60
