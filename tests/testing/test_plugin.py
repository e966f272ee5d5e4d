"""``pytest --palestra ENV``: one item per check."""

import sys

import pytest

from palestra.checking import CHECKS

pytest_plugins = ["pytester"]

ENV = """
from palestra import Env, Step
class Sum(Env):
    '''Add two numbers.'''
    reward_range = (0.0, 1.0)
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        self.a, self.b = (int(n) for n in self.rng.integers(1000, 9999, 2))
        return f"{self.a} + {self.b}?", {"max_turns": 1}
    def step(self, action):
        return Step("", float(action == str(self.a + self.b)), True, False, {})
    def oracle(self):
        return str(self.a + self.b)
class Generous(Sum):
    '''Pays more than its range allows, and raises nothing.'''
    def step(self, action):
        return Step("", 2.0, True, False, {})
"""
INI = "[pytest]\nasyncio_default_fixture_loop_scope = function\n"
LOAD = ("-p", "no:cacheprovider")
QUICK = (*LOAD, "--palestra-tasks", "5", "-k", "reward or one-end or info")


@pytest.fixture
def folder(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makepyfile(own_env=ENV)
    pytester.makeconftest('pytest_plugins = ["palestra.testing.plugin"]')
    pytester.makeini(INI)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.setattr("sys.path", [*sys.path])
    return pytester


@pytest.mark.gate
@pytest.mark.slow
def test_an_environment_in_the_working_folder_is_checked_with_one_item_per_check(folder: pytest.Pytester) -> None:
    result = folder.runpytest_inprocess(*QUICK, "--palestra", "own_env:Sum", "-v")
    result.assert_outcomes(passed=3, deselected=len(CHECKS) - 3)
    result.stdout.fnmatch_lines([f"*collected {len(CHECKS)} items / {len(CHECKS) - 3} deselected / 3 selected"])
    result.stdout.fnmatch_lines(["own_env:Sum::info PASSED*", "own_env:Sum::reward PASSED*", "own_env:Sum::one-end PASSED*"])


@pytest.mark.gate
@pytest.mark.slow
def test_a_failed_check_fails_its_item_and_shows_the_advice_without_a_traceback(folder: pytest.Pytester) -> None:
    result = folder.runpytest_inprocess(*QUICK, "--palestra", "own_env:Generous")
    result.assert_outcomes(passed=2, failed=1, deselected=len(CHECKS) - 3)
    result.stdout.fnmatch_lines(["*own_env:Generous reward*", "*2.0*"])
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.slow
def test_every_check_is_an_item_and_patterns_and_several_environments_are_taken(folder: pytest.Pytester) -> None:
    words = ["--collect-only", "-q", "--palestra", "game:GuessTheNumber-v0-*", "--palestra", "own_env:Sum"]
    lines = folder.runpytest_inprocess(*LOAD, *words).outlines
    assert [f"own_env:Sum::{check.name}" for check in CHECKS] == [line for line in lines if line.startswith("own_env:Sum::")]
    assert sum(line.startswith("game:GuessTheNumber-v0-") and line.endswith("::reward") for line in lines) >= 2


@pytest.mark.slow
def test_skips_and_warnings_are_passed_on(folder: pytest.Pytester) -> None:
    words = (*LOAD, "--palestra-tasks", "5", "-k", "fork or ends", "--palestra", "own_env:Sum", "-rs")
    folder.runpytest_inprocess(*words).assert_outcomes(passed=1, skipped=1, deselected=len(CHECKS) - 2)


@pytest.mark.parametrize("name", ["game:Nothing-v9", "gmae:*"])
@pytest.mark.slow
def test_an_unknown_environment_is_a_usage_error_that_names_it(folder: pytest.Pytester, name: str) -> None:
    result = folder.runpytest_inprocess(*LOAD, "--palestra", name)
    assert result.ret is pytest.ExitCode.USAGE_ERROR
    assert f"--palestra {name}: no environment" in result.stderr.str()


@pytest.mark.slow
def test_an_environment_on_a_server_is_not_confused_with_one_of_the_same_name_here(folder: pytest.Pytester) -> None:
    result = folder.runpytest_inprocess(*QUICK, "--palestra", "remote:http://127.0.0.1:1#game:GuessTheNumber-v0")
    result.assert_outcomes(failed=3, deselected=len(CHECKS) - 3)
    result.stdout.fnmatch_lines(["*is played on a server. Check it there: palestra check game:GuessTheNumber-v0"])
