"""The checker, checked: each broken environment is caught by the check meant for it and by no other."""

import random
import re
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.checking import broken, good
from tests.checking.broken import CAUGHT_BY, ZOO

import palestra
from palestra import AsyncEnv, Env, Wrapper
from palestra.adapters import Guarded
from palestra.checking import CHECKS, CheckReport, Status, check_env, survey
from palestra.checking.subject import find
from palestra.errors import UnknownEnv, UsageError
from palestra.registry import unregister

AnyEnv = type[Env] | type[AsyncEnv]

GOOD: list[AnyEnv] = [
    good.DeclaredParity,
    good.Code,
    good.Gamble,
    good.Patient,
    good.Mute,
    good.Heavy,
    good.Picture,
    good.Errand,
]


HERE = frozenset({"same-elsewhere"})
"""What to skip in order to start no other process."""


def bitten(report: CheckReport) -> set[str]:
    return {finding.check for finding in report.findings if finding.status in (Status.FAIL, Status.WARN)}


SAME = {"same-here", "same-elsewhere", "same-on-replay", "side-by-side"}
CONTRADICTED = {
    "episodes-run": {check.name for check in CHECKS},
    "same-here": {*SAME, "global-generators", "fork", "render"},
    "global-generators": {*SAME, "constant-answer", "fork"},
    "reward": {"oracle-solves", "blind-answers", "random-plays", "constant-answer"},
    "observation": {"answer-hidden"},
    "oracle-solves": {"answer-hidden"},
}
"""A check that fails → checks whose green row beside it would say the contrary, or more than is known."""


def passing(report: CheckReport) -> set[str]:
    return {finding.check for finding in report.found(Status.PASS)}


def status_of(report: CheckReport, check: str) -> Status:
    return next(finding.status for finding in report.findings if finding.check == check)


def tasks_for(check: str) -> int:
    return {"constant-answer": 60, "blind-answers": 60, "answer-hidden": 60, "oracle-solves": 60, "quick": 2}.get(check, 12)


@pytest.fixture(autouse=True)
def _clean_zoo() -> Iterator[None]:
    yield
    broken.clean_up()


@pytest.fixture
def short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(survey, "SIZES", (256, 4096))


FIRST = {check: animal for animal, check in reversed(CAUGHT_BY.items())}
"""One fault for each check: those that ``.ci/run`` looks for in new processes too. The nightly run looks for all."""


@pytest.mark.parametrize(
    ("animal", "check"),
    [
        pytest.param(animal, check, id=animal.__name__, marks=[pytest.mark.full] * (FIRST[check] is not animal))
        for animal, check in CAUGHT_BY.items()
    ],
)
@pytest.mark.slow
def test_each_fault_is_caught_by_its_own_check_and_no_other(animal: AnyEnv, check: str) -> None:
    assert bitten(check_env(animal, n=tasks_for(check))) == {check}


WAITING = {"BlocksInATask", "BlocksTheLoop", "Quadratic"}
"""These hold the loop for seconds until they are caught."""


@pytest.mark.parametrize(
    ("animal", "check"),
    [
        pytest.param(animal, check, id=animal.__name__, marks=[pytest.mark.slow] * (animal.__name__ in WAITING))
        for animal, check in CAUGHT_BY.items()
    ],
)
def test_each_fault_is_caught(animal: AnyEnv, check: str, request: pytest.FixtureRequest) -> None:
    """The same without new processes and megabytes, unless the fault needs them."""
    if animal.__name__ != "Quadratic":
        request.getfixturevalue("short_texts")
    report = check_env(animal, n=tasks_for(check), skip=set() if check == "same-elsewhere" else {"same-elsewhere"})
    assert bitten(report) == {check}
    assert passing(report) & CONTRADICTED.get(check, set()) == set()
    assert report.ok == (status_of(report, check) is Status.WARN)
    (finding,) = (candidate for candidate in report.findings if candidate.check == check)
    assert len(finding.message) > 10
    assert len(finding.detail) > 40
    assert (finding.message + finding.detail).isprintable()
    report.to_json()


@pytest.mark.parametrize("env", GOOD, ids=lambda env: env.__name__)
@pytest.mark.slow
def test_good_ones_pass(env: AnyEnv, short_texts: None) -> None:
    report = check_env(env, n=60, skip=HERE)
    assert bitten(report) == set()
    assert report.ok


@pytest.mark.slow
def test_a_talkative_async_env_is_the_same_elsewhere(short_texts: None) -> None:
    """Printing must not disturb what the other process says, and the colour must not matter."""
    report = check_env(good.Talkative, n=5)
    assert bitten(report) == set()
    assert status_of(report, "same-elsewhere") is Status.PASS


@pytest.mark.slow
def test_guess_the_number_passes() -> None:
    report = check_env("game:GuessTheNumber-v0")
    assert bitten(report) == set()
    assert {finding.check for finding in report.found(Status.SKIP)} == {"answer-hidden"}  # two digits are found anywhere
    assert (report.tasks, report.asked) == (200, 200)


@pytest.mark.parametrize("animal", [ZOO["Triple"], ZOO["Word"]], ids=lambda animal: animal.__name__)
def test_an_answer_that_is_not_shown_is_not_found_in_any_spelling(animal: AnyEnv, short_texts: None) -> None:
    assert status_of(check_env(animal, n=60, skip=HERE), "answer-hidden") is Status.PASS


@pytest.mark.parametrize("leak", [ZOO["LeaksVerbatim"], ZOO["LeaksList"]], ids=lambda leak: leak.__name__)
def test_too_few_tasks_are_no_proof_that_the_answer_is_hidden(leak: AnyEnv, short_texts: None) -> None:
    assert status_of(check_env(leak, n=5, skip=HERE), "answer-hidden") is Status.SKIP


def test_a_copy_in_other_separators_fails_and_a_code_to_break_is_a_warning(short_texts: None) -> None:
    copied, coded = (check_env(leak, n=60, skip=HERE) for leak in (ZOO["LeaksList"], ZOO["LeaksBase64"]))
    assert status_of(copied, "answer-hidden") is Status.FAIL
    assert status_of(coded, "answer-hidden") is Status.WARN


def test_a_check_that_was_left_out_is_not_taken_for_granted(short_texts: None) -> None:
    report = check_env(good.Code, n=5, skip={"same-elsewhere", "global-generators"})
    assert status_of(report, "same-here") is Status.SKIP
    assert report.ok


def test_the_planted_faults_are_many() -> None:
    assert len(CAUGHT_BY) >= 25
    assert len({*broken.LEAKS, *broken.WORD_LEAKS}) >= 8


def test_a_blocking_env_is_not_blamed_for_being_slow(short_texts: None) -> None:
    report = check_env(good.Heavy, n=3, skip=HERE)
    assert status_of(report, "quick") is Status.SKIP


def test_the_answer_among_others_is_only_a_warning(short_texts: None) -> None:
    report = check_env(good.Pick, n=40, skip=HERE)
    assert status_of(report, "answer-hidden") is Status.WARN
    assert report.ok


@pytest.mark.slow
def test_a_constant_answer_above_the_floor_is_a_warning_until_it_is_certain(short_texts: None) -> None:
    few, many = (check_env(good.Months, n=n, skip=HERE) for n in (60, 300))
    assert status_of(few, "constant-answer") is Status.WARN
    assert few.ok
    (finding,) = few.found(Status.WARN)
    assert "not certain with 60 tasks, try -n 1000" in finding.message
    assert status_of(many, "constant-answer") is Status.FAIL


def test_every_row_of_a_file_is_one_task(tmp_path: Path, short_texts: None) -> None:
    rows = [f'{{"question": "What is {n} + 100?", "answer": {n + 100}}}' for n in range(8)]
    (tmp_path / "sums.jsonl").write_text("\n".join(rows))
    target = f"data:{tmp_path / 'sums.jsonl'}?grader=number"
    report = check_env(target, n=20, skip=HERE)
    assert (report.tasks, report.asked) == (8, 8)
    assert report.ok, report.found(Status.FAIL)
    assert {task.index for task in find(target, 20, 0).tasks} == set(range(8))
    assert len(find(target, 3, 0).tasks) == 3


def test_what_is_not_offered_is_skipped(short_texts: None) -> None:
    report = check_env(good.Mute, n=3, skip=HERE)
    skipped = {finding.check for finding in report.found(Status.SKIP)}
    assert "no sample_random_action(): the policy random cannot play" in {finding.message for finding in report.findings}
    assert {"oracle-solves", "random-plays", "constant-answer", "answer-hidden", "fork"} <= skipped


def test_a_class_a_reference_and_an_id_are_the_same_target(short_texts: None) -> None:
    palestra.register("check:Code-v0", good.Code)
    try:
        by_id = check_env("check:Code-v0", n=5, skip=HERE)
    finally:
        unregister("check:Code-v0")
    by_class = check_env(good.Code, n=5, skip=HERE)
    by_reference = check_env("tests.checking.good:Code", n=5, skip=HERE)
    assert by_class.findings == by_reference.findings == by_id.findings
    assert by_class.env == "tests.checking.good:Code"


class Shout(Wrapper):
    def __init__(self, env: AsyncEnv, mark: str = "!") -> None:
        super().__init__(env)
        self.mark = mark

    def observation(self, observation: Any) -> Any:
        return f"{observation}{self.mark}"


@pytest.mark.parametrize(("wrapper", "status"), [(Shout, Status.PASS), (partial(Shout, mark="?"), Status.SKIP)])
@pytest.mark.slow
def test_wrappers_go_along_to_the_other_process_if_they_have_a_name(wrapper: Any, status: Status, short_texts: None) -> None:
    palestra.register("check:Shout-v0", good.Code, wrappers=[wrapper])
    try:
        report = check_env("check:Shout-v0", n=5)
    finally:
        unregister("check:Shout-v0")
    assert report.ok
    assert status_of(report, "same-elsewhere") is status


def test_a_class_typed_into_a_notebook_is_not_tried_elsewhere(monkeypatch: pytest.MonkeyPatch, short_texts: None) -> None:
    class Typed(good.Code):
        pass

    Typed.__module__, Typed.__qualname__ = "__main__", "Typed"
    monkeypatch.setattr(sys.modules["__main__"], "Typed", Typed, raising=False)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    report = check_env(Typed, n=2)
    assert status_of(report, "same-elsewhere") is Status.SKIP
    assert report.ok


class OnlyHere(good.Code):
    """Works where this module's variable was set by hand."""

    def __init__(self) -> None:
        if not PREPARED:
            raise RuntimeError("not prepared")


PREPARED: list[str] = []


@pytest.mark.slow
def test_an_env_that_does_not_run_elsewhere_is_told_so(monkeypatch: pytest.MonkeyPatch, short_texts: None) -> None:
    monkeypatch.setattr(sys.modules[__name__], "PREPARED", ["by hand"])
    report = check_env(OnlyHere, n=2)
    assert bitten(report) == {"same-elsewhere"}


def test_slow_episodes_are_played_less_often(short_texts: None) -> None:
    report = check_env(good.Code, n=1000, seconds=0.0, skip=HERE)
    assert (report.tasks, report.asked) == (5, 1000)


@pytest.mark.slow
def test_a_leaking_env_is_played_less_often(short_texts: None) -> None:
    assert check_env(ZOO["LeaksFile"], n=60, skip=HERE).tasks == 20


@pytest.mark.slow
def test_the_global_generators_are_put_back(short_texts: None) -> None:
    random.seed(5)
    np.random.seed(5)
    expected = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    check_env(ZOO["GlobalReseeded"], n=2, skip=HERE)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == expected  # type: ignore[index]


def test_what_was_left_out_is_said(short_texts: None) -> None:
    skipped = ("same-here", "global-generators", "same-elsewhere", "same-on-replay", "side-by-side", "fork")
    report = check_env(ZOO["Clock"], n=2, skip=skipped)
    assert report.ok
    assert status_of(report, "same-here") is Status.SKIP


def test_mistakes_of_the_caller_are_told_at_once() -> None:
    class Local(good.Code):
        pass

    with pytest.raises(UsageError, match="top level"):
        check_env(Local)
    with pytest.raises(UsageError, match="neither"):
        check_env(int)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="same-here"):
        check_env(good.Code, skip=["nonsense"])
    with pytest.raises(UsageError, match="at least one"):
        check_env(good.Code, n=0)
    with pytest.raises(UnknownEnv):
        check_env("game:NoSuch-v0")


def test_the_table_is_in_order() -> None:
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    for number, check in enumerate(CHECKS):
        assert set(check.after) <= set(names[:number])
        assert check.explanation.endswith((".", ","))


def test_an_env_that_nobody_guards_is_told_so(monkeypatch: pytest.MonkeyPatch, short_texts: None) -> None:
    monkeypatch.setattr(Guarded, "step", lambda self, action: self.env.step(action))
    report = check_env(good.Code, n=3, skip=HERE)
    assert bitten(report) == {"step-outside"}


@pytest.mark.parametrize(
    ("animal", "line"),
    [
        ("GlobalRandom", "random.randint(0, 10**6)"),
        ("GlobalNumPy", "np.random.random()"),
        ("GlobalReseeded", "random.seed(env.task.seed)"),
        ("AsyncGlobal", "random.random()"),
    ],
)
@pytest.mark.slow
def test_the_line_that_draws_from_a_global_generator_is_cited(animal: str, line: str, short_texts: None) -> None:
    report = check_env(ZOO[animal], n=3, skip=HERE)
    (finding,) = report.found(Status.FAIL)
    assert finding.check == "global-generators"
    assert "broken.py, line " in finding.detail
    assert line in finding.detail


@pytest.mark.slow
def test_global_random_is_never_advised_a_floor(short_texts: None) -> None:
    report = check_env(ZOO["GlobalAnswer"], n=20, skip=HERE)
    assert {finding.check for finding in report.found(Status.FAIL)} == {"global-generators"}
    assert "floor" not in "".join(finding.message + finding.detail for finding in report.findings)


@pytest.mark.parametrize(
    ("animal", "advice", "never"),
    [
        (ZOO["LastMoveCommon"], "declare what answering blindly pays", "outcomes"),
        (ZOO["OneAnswer"], "as much as the oracle", "floor=1"),
        (good.Parity, "declare floor=0.5", "blindly"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.slow
def test_the_advice_on_a_constant_answer_hides_nothing(animal: AnyEnv, advice: str, never: str, short_texts: None) -> None:
    report = check_env(animal, n=200, skip={"same-elsewhere", "fork", "any-text"})
    (finding,) = (finding for finding in report.findings if finding.check == "constant-answer")
    assert finding.status is Status.FAIL
    told = finding.message + finding.detail
    assert advice in told
    assert never not in told
    advised = [float(number) for number in re.findall(r"(?:declare|pays:) floor=(\d+(?:\.\d+)?)", told)]
    scored = float(re.search(r"scores ([\d.]+)", finding.message)[1])  # type: ignore[index]
    assert all(abs(floor - scored) < 0.1 for floor in advised)


@pytest.mark.parametrize("animal", ["NoSuper", "NoSuperButRng", "NoSuperButTask"])
def test_a_reset_without_super_is_diagnosed_as_such(animal: str, short_texts: None) -> None:
    (finding,) = check_env(ZOO[animal], n=3, skip=HERE).found(Status.FAIL)
    assert finding.message == "reset() does not call super().reset(seed=seed, task=task)"


@pytest.mark.slow
def test_an_async_env_that_awaits_for_long_is_not_blamed(short_texts: None) -> None:
    report = check_env(good.Waits, n=2, skip=HERE)
    assert status_of(report, "quick") is Status.PASS
