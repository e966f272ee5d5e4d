"""How long a child process may take: CPU time counts, so that a busy machine is no fault of the environment."""

import subprocess
import sys

import pytest

from palestra.checking import elsewhere


def answer_of(code: str, patience: float) -> elsewhere.Elsewhere:
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        try:
            return elsewhere._answer(child, patience)
        finally:
            child.kill()


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "_GLANCE", 0.02)


def test_a_child_that_computes_forever_is_given_up() -> None:
    assert "no answer within 3 s and 0 s of CPU time" in answer_of("while True: pass", 0.3).error


def test_a_child_that_waits_forever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elsewhere, "STANDSTILL", 0.002)
    assert "no answer" in answer_of("import time; time.sleep(1000)", 100.0).error


def test_a_child_that_gets_no_cpu_time_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes longer by the clock than it may use of CPU time."""
    monkeypatch.setattr(elsewhere, "STANDSTILL", 1000.0)
    waits = 'import time; time.sleep(0.6); print(\'{"error": "late"}\')'
    assert answer_of(waits, 0.5).error == "late"
