"""The owners of the formats read what we write: inspect_ai and Harbor, where a Python that has them is named.

``PALESTRA_TEST_INSPECT`` and ``PALESTRA_TEST_HARBOR`` name Pythons with ``inspect_ai`` and ``harbor`` installed.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from palestra import Trajectory, collect
from palestra.interchange import LogHeader, write_atif, write_inspect
from tests.interchange.test_formats import failed, rich

READERS = Path(__file__).with_name("foreign_readers.py")


def read_by(variable: str, form: str, path: Path) -> Any:
    if variable not in os.environ:
        pytest.skip(f"{variable} names no Python")
    done = subprocess.run([os.environ[variable], READERS, form, path], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def played() -> list[Trajectory]:
    return [*collect("game:Sudoku-v0-easy", "random", n=4, group_size=2, progress=False), rich(), failed()]


def test_inspect_reads_our_log(played: list[Trajectory], tmp_path: Path) -> None:
    write_inspect(played, tmp_path / "log.json", LogHeader(task="sudoku", metrics={"mean": 0.25}))
    found = read_by("PALESTRA_TEST_INSPECT", "inspect", tmp_path / "log.json")
    assert (found["status"], found["version"], found["samples"], found["errors"]) == ("success", 2, len(played), 1)
    assert found["rewards"] == [one.reward for one in played if one.reward is not None]
    assert found["mean"] == 0.25


def test_harbor_reads_our_documents(played: list[Trajectory], tmp_path: Path) -> None:
    write_atif(played, tmp_path / "atif")
    found = read_by("PALESTRA_TEST_HARBOR", "atif", tmp_path / "atif")
    assert found["documents"] == len(played) - 1
    assert found["versions"] == ["ATIF-v1.7"]
    assert found["steps"][0] == len(played[0].turns) + 1
