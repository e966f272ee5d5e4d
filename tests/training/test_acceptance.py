"""The acceptance list on a CPU: every row that a CPU can show passes, and the others say that it cannot."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.foundation.encoding import decode_json
from palestra.training import acceptance
from palestra.training.acceptance import CHECKS, Machine, Missed, accept

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]


@pytest.mark.slow
def test_the_list_passes_on_a_cpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path))
    done = CliRunner().invoke(app, ["doctor", "--acceptance"], catch_exceptions=False)
    report = decode_json(done.stdout.splitlines()[-1].encode(), dict)
    outcomes = {row["name"]: row["outcome"] for row in report["rows"]}
    assert report["counts"]["failed"] == 0, done.stdout
    absent = {"flash attention", "NCCL", "LoRA swap on a server", "sleep of a server"}
    assert {name for name, outcome in outcomes.items() if outcome == "not applicable"} == absent
    assert done.exit_code == 0


def test_a_row_that_misses_its_bar_fails_and_the_next_one_is_still_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missed(_: Machine) -> str:
        raise Missed("0.1 instead of 0.2\nand more")

    def broken(_: Machine) -> str:
        raise KeyError("a key")

    monkeypatch.setattr(acceptance, "CHECKS", {"one": missed, "other": broken, "two": lambda _: "fine"})
    rows = accept(Machine(tmp_path))
    assert [(row.name, row.outcome, row.detail) for row in rows] == [
        ("one", "failed", "Missed: 0.1 instead of 0.2"),
        ("other", "failed", "KeyError: 'a key'"),
        ("two", "passed", "fine"),
    ]


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("import time; time.sleep(600)", "two ranks made no gradient in 1 s"),
        ("import sys; sys.stderr.write('x' * 300_000 + '\\nthe cause'); sys.exit(3)", "ended with code 3: the cause"),
    ],
)
def test_two_ranks_that_hang_or_write_much_are_a_failed_row(
    script: str, message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start = subprocess.Popen
    started = []

    def other(command: list[str], **options: Any) -> "subprocess.Popen[bytes]":
        started.append(start([sys.executable, "-I", "-c", script], **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", other)
    monkeypatch.setattr(acceptance, "_PATIENCE", 1.0)
    with pytest.raises(Missed, match=message):
        CHECKS["two ranks"](Machine(tmp_path, "a model"))
    assert [process.returncode is None for process in started] == [False, False]
