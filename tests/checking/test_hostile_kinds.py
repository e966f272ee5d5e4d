"""The hostile environments of ``tests.rollouts.hostile``: the check ends, and reports what a rollout would not accept."""

import asyncio
import signal
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from time import monotonic

import pytest
from tests.rollouts.hostile import ENVS, Innocent, env_class, env_task

import palestra
from palestra.checking import CheckReport, Status, check_env

SAMPLED = 41
"""One kind of this many is in the fast group."""
CALL_SECONDS = 0.5
LATEST = CALL_SECONDS + 10.0
"""Seconds for the check of a kind, beside those that the same check of a sound environment takes."""

pytestmark = [
    # Warnings of Python about what strangers leave behind, such as a coroutine that nobody awaited.
    pytest.mark.filterwarnings(
        "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::UserWarning", "ignore::RuntimeWarning"
    )
]


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("palestra.checking.subject"), "CALL_SECONDS", CALL_SECONDS)
    monkeypatch.setattr(import_module("palestra.rollouts.driving"), "GRACE", 0.05)


def checked(target: type[palestra.Env] | type[palestra.AsyncEnv]) -> CheckReport:
    # Interpreters of their own are the business of test_elsewhere.py, and take a second for each kind.
    return check_env(target, n=3, seconds=CALL_SECONDS, skip=["same-elsewhere"])


def fails_in_a_rollout(name: str) -> bool:
    async def played() -> list[palestra.Trajectory]:
        rollout = palestra.rollout([env_task(name, 1)], lambda text: "act", deadline=CALL_SECONDS, retries=0)
        return [trajectory async for trajectory in rollout]

    return any(trajectory.failures for trajectory in asyncio.run(played()))


@pytest.fixture(scope="module")
def of_the_innocent() -> tuple[set[tuple[str, Status]], float]:
    """The findings about the environment from which the kinds are made, and the seconds that the check took."""
    began = monotonic()
    report = checked(Innocent)
    return {(finding.check, finding.status) for finding in report.findings}, monotonic() - began


@pytest.mark.parametrize(
    "name", [name if number % SAMPLED == 0 else pytest.param(name, marks=pytest.mark.full) for number, name in enumerate(ENVS)]
)
def test_a_check_reports_what_a_rollout_does_not_accept(
    name: str, of_the_innocent: tuple[set[tuple[str, Status]], float]
) -> None:
    usual, seconds = of_the_innocent
    began = monotonic()
    report = checked(env_class(name))
    assert monotonic() - began < LATEST + 3 * seconds
    status = {finding.check: finding.status for finding in report.findings}
    assert len(status) == len(report.findings)
    own = {check for check, outcome in status.items() if outcome is Status.FAIL and (check, outcome) not in usual}
    assert own or not fails_in_a_rollout(name)
    if status["episodes-run"] is Status.FAIL:  # nothing else could be checked, so nothing else is green
        assert set(status.values()) == {Status.FAIL, Status.SKIP}
    for finding in report.findings:
        assert "raised an exception" not in finding.message, finding.detail


BUSY = """
import palestra

class Busy(palestra.Env):
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        return "go", {}

    def step(self, action):
        while True:
            try:
                while True:
                    pass
            except KeyboardInterrupt:
                if not CATCHES:
                    raise
"""


@pytest.mark.slow
@pytest.mark.gate
@pytest.mark.parametrize("catches", [False, True])
def test_a_busy_loop_is_named_and_ends_with_ctrl_c(catches: bool, tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY.replace("CATCHES", str(catches)))
    command = [sys.executable, "-m", "palestra.cli", "check", "busy:Busy"]
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        named = next(line for line in process.stderr if "has not returned" in line)
        assert named.startswith("step() of the environment busy:Busy")
        assert "busy.py:" in named
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
