"""verifiers' tasksets in Palestra: one prompt, one reply, the rewards of the taskset; others are refused with a reason."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("verifiers")

import palestra
from palestra import Task, check_env, collect, make
from palestra.errors import UsageError

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

SUMS = "verifiers:vf_sums"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The id of a taskset is the name of a module at the top."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{Path(__file__).parents[2]}")


def test_rewards_are_those_of_the_taskset() -> None:
    report = palestra.evaluate(f"{SUMS}?count=5", lambda text: "4", n=100)
    assert report.suite.issued == 5
    assert report.suite.score is not None
    assert report.suite.score.mean == pytest.approx(2.0 / 5)
    (played,) = collect([Task(SUMS, 0, index=2)], lambda text: "4")
    assert played.info["opening"] == [{"role": "system", "content": "Reply with a number."}]
    assert played.turns[0].observation == "What is 2 + 2?"
    assert (played.reward, played.turns[0].info["metrics"]) == (2.0, {"right": 2.0, "length": 1.0})


@pytest.mark.parametrize("taskset", ["textarena", "openenv", "harbor", "nemo_gym"])
def test_tasksets_with_a_loop_of_their_own_are_refused(taskset: str) -> None:
    with pytest.raises(UsageError, match=r"drives the model itself|cannot load the taskset"):
        make(f"verifiers:{taskset}")


def test_what_cannot_be_loaded_says_why() -> None:
    with pytest.raises(UsageError, match=r"verifiers \(tried with 0\.4\.0\) cannot load"):
        make("verifiers:no_such_taskset")


def test_the_check_passes() -> None:
    report = check_env(SUMS, n=5)
    assert [finding for finding in report.findings if finding.status == "fail"] == []
