"""A rollout that is kept, killed and taken up again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.cluster import Crew, LocalFleet
from palestra.cluster.record import audit, recorded
from palestra.errors import UsageError
from palestra.rollout import collect, read_trajectories
from tests.cluster.chaos import digest

GUESS = "game:GuessTheNumber-v0-easy"


async def test_each_episode_is_there_once_over_any_number_of_interruptions(tmp_path: Path) -> None:
    for wanted in (7, 11, 1000):
        async with Crew(LocalFleet()) as crew:
            stream = recorded(crew, tmp_path, GUESS, "random", n=30, group_size=2, seed=5, concurrency=8)
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
    async with Crew(LocalFleet()) as crew:
        assert len([t async for t in recorded(crew, tmp_path, GUESS, "random", n=5)]) == 5
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


async def test_another_rollout_needs_another_folder(tmp_path: Path) -> None:
    async with Crew(LocalFleet()) as crew:
        assert [t async for t in recorded(crew, tmp_path, GUESS, "random", n=1)]
        with pytest.raises(UsageError, match="another folder"):
            assert [t async for t in recorded(crew, tmp_path, GUESS, "random", n=1, seed=2)]


def test_the_command_goes_on_after_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "palestra.cli", "rollout", "random", "-e", "game:Sudoku-v0-easy", "-n", "400"]
    command += ["-o", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    path = tmp_path / "run" / "trajectories.jsonl"
    until = time.monotonic() + 60
    while not (path.exists() and path.stat().st_size > 20_000) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "issued 400 = consumed 400 + failed 0 + dropped 0: each exactly once" in done.stdout
    expected = collect("game:Sudoku-v0-easy", "random", n=400, deadline=600.0, progress=False)
    assert digest(list(read_trajectories(path))) == digest(expected)


def test_a_policy_that_nobody_knows_is_told() -> None:
    result = CliRunner().invoke(app, ["rollout", "nobody", "-e", GUESS])
    assert isinstance(result.exception, UsageError)
