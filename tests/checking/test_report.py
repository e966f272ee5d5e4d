"""A report as data, and as something to read."""

import io
import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.checking.good import Parity

from palestra.checking import CheckReport, Finding, Status, check_env, render
from palestra.checking.report import shown
from palestra.foundation.encoding import decode_json


def printed(report: CheckReport, width: int = 110) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(render(report))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def report_of(*findings: Finding) -> CheckReport:
    return CheckReport("demo:Thing-v0", 20, 200, findings, 1.25)


def test_only_failures_make_it_not_ok() -> None:
    passing = Finding("a", Status.PASS, "fine")
    assert report_of(passing, Finding("b", Status.WARN, "hm"), Finding("c", Status.SKIP, "no")).ok
    assert not report_of(passing, Finding("d", Status.FAIL, "broken")).ok


def test_json_holds_everything_and_reads_back() -> None:
    report = report_of(Finding("a", Status.PASS, "fine"), Finding("d", Status.FAIL, "broken", "got 1, expected 2"))
    written = json.loads(report.to_json())
    assert written["ok"] is False
    assert written["findings"][1] == {"check": "d", "status": "fail", "message": "broken", "detail": "got 1, expected 2"}
    assert decode_json(report.to_json(), CheckReport) == report


def test_rendered_as_people_read_it() -> None:
    report = report_of(
        Finding("same-here", Status.PASS, "same task, same episode (this process)"),
        Finding("same-elsewhere", Status.PASS, "same task, same episode (another process, another hash seed)"),
        Finding("same-on-replay", Status.PASS, "same task, same episode (replay)"),
        Finding("oracle-solves", Status.PASS, "oracle solves 20/20"),
        Finding("blind-answers", Status.PASS, "empty and garbage actions score 0.00"),
        Finding("fork", Status.SKIP, "no fork()"),
        Finding("constant-answer", Status.FAIL, "a constant answer scores 0.51", "Declare [floor]."),
    )
    assert printed(report) == "\n".join(
        [
            "demo:Thing-v0: 20 of 200 tasks, 1.2 s",
            "  ✓ same task, same episode (this process, another process, another hash seed, replay)",
            "  ✓ oracle solves 20/20                   ✓ empty and garbage actions score 0.00",
            "  · no fork()",
            "  ✗ a constant answer scores 0.51",
            "    Declare [floor].",
        ]
    )


def test_a_message_with_brackets_inside_stays_as_it_is() -> None:
    shown = printed(report_of(Finding("a", Status.SKIP, "texts (under 3 characters) are not searched")))
    assert "texts (under 3 characters) are not searched\n" in f"{shown}\n"
    assert "searched)" not in shown


@pytest.mark.slow
def test_parity_reads_as_in_the_tutorial() -> None:
    text = printed(check_env(Parity))
    assert "✓ same task, same episode (this process, another process, another hash seed, replay)" in text
    assert "✓ oracle solves 200/200" in text
    assert "✓ empty and garbage actions score 0.00" in text
    assert "with two outcomes chance is 0.5 (declare floor=0.5 or ask for more)" in text


@given(st.text(st.characters(codec=None), max_size=200), st.integers(1, 100))
def test_whatever_an_environment_says_can_be_shown(text: str, limit: int) -> None:
    line = shown(text, limit)
    assert line.isprintable()
    assert "\n" not in line
    line.encode()


@pytest.mark.slow
def test_to_check_does_not_load_rich() -> None:
    code = "import sys, palestra.checking; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=False).returncode == 0
