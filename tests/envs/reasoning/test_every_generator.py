"""All generators, each on a few tasks: the contract, and the same episodes under another hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")

from palestra.checking import check_env
from palestra.checking.report import Status
from palestra.envs.reasoning.ids import SLOW
from palestra.registry import list_envs

IDS = [known.id for known in list_envs("rg:*")]


@pytest.mark.slow
@pytest.mark.parametrize("id", IDS)
def test_it_keeps_the_contract(id: str) -> None:
    slow = id.removeprefix("rg:") in SLOW
    # Other processes are looked at once for all generators, below: each would import the library for seconds.
    report = check_env(id, tasks=5 if slow else 20, skip=["same-elsewhere"], seconds=5)
    assert [finding for finding in report.findings if finding.status is Status.FAIL] == []


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_hash_seed_gives_the_same_episodes() -> None:
    script = str(Path(__file__).with_name("plays.py"))
    path = os.pathsep.join(sys.path)
    children = [
        subprocess.Popen(
            [sys.executable, script],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path},
            stdout=subprocess.PIPE,
        )
        for seed in ("1", "2")
    ]
    first, second = (json.loads(child.communicate()[0]) for child in children)
    assert {id for id in IDS if first[id] != second[id]} == set()
