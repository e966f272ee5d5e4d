"""What is asked for and not played: every episode is accounted for, and the mean of a part is never that of the whole."""

import asyncio
import itertools
import json
import random
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.evaluation.present import partial_score, present
from typer.testing import CliRunner

from palestra import Env, Step, Task
from palestra.cli.app import app
from palestra.core import Conversation
from palestra.errors import SchemaError, UsageError
from palestra.evaluation import (
    Budget,
    PartialComparison,
    Report,
    compare_runs,
    comparison_text,
    evaluate,
    read_episodes,
    read_report,
    report_html,
    report_markdown,
    report_on,
)
from palestra.evaluation.asked import Asked, score_ranges, task_name
from palestra.evaluation.leaderboard import entry_of, leaderboard_page
from palestra.evaluation.report import EpisodeScore
from palestra.evaluation.wording import dollars
from palestra.foundation.statistics import MissingScore, Score, TaskMeans, mean_interval, partial_mean
from palestra.registry import spec
from palestra.trajectory import Completion, Usage
from palestra.wrappers import TurnLimit

GUESS = "game:GuessTheNumber-v0-easy"


class Walk(Env):
    """Takes ``seed % longest + 1`` turns, and pays less the longer it takes: what a budget cuts is not like the rest."""

    score_range = (0.0, 1.0)
    longest = 1

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.length = self.left = self.task.seed % self.longest + 1
        return "go", {}

    def step(self, action: str) -> Step:
        self.left -= 1
        over = self.left == 0
        return Step("on", 1.0 / self.length if over else 0.0, over, False, {"success": self.length == 1} if over else {})


class Walk2(Walk):
    longest = 2


class Walk7(Walk):
    longest = 7


class Undeclared(Walk7):
    score_range = (-float("inf"), float("inf"))


class Payer:
    """Every reply costs ``price`` dollars and ten tokens."""

    name = "payer"

    def __init__(self, price: float) -> None:
        self.price = price
        self.calls = 0

    async def act(self, conversation: Conversation) -> Completion:
        self.calls += 1
        await asyncio.sleep(0)
        return Completion("a", usage=Usage(7, 3, self.price))


def tasks(kind: type[Env], count: int) -> list[Task]:
    return [Task(f"{__name__}:{kind.__name__}", seed) for seed in range(count)]


EVERY = itertools.product(
    (0.0001, 0.03), (1, 3, 16), (1, 4), (Walk, Walk2, Walk7, Undeclared), (Budget(dollars=1.0), Budget(tokens=1))
)
SETTINGS: list[tuple[float, int, int, type[Env], Budget]] = [
    *random.Random(0).sample(list(EVERY), 48),
    (0.5, 64, 2, Walk7, Budget(dollars=1.0)),
    (2.0, 5, 3, Walk2, Budget(tokens=1)),
]


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_every_episode_of_a_run_without_money_is_accounted_for(number: int, tmp_path: Path) -> None:
    price, concurrency, repeats, kind, unit = SETTINGS[number]
    affordable = random.Random(number).randrange(1, 30)
    budget = Budget(dollars=affordable * price) if unit.dollars else Budget(tokens=affordable * 10)
    policy = Payer(price)
    report = evaluate(tasks(kind, 30), policy, group_size=repeats, budget=budget, concurrency=concurrency, out=tmp_path / "run")
    whole = evaluate(tasks(kind, 30), Payer(price), group_size=repeats)
    suite = report.suite
    unfinished, unplayed = suite.failures.get("budget", 0), suite.failures.get("not played", 0)
    assert suite.scored + unfinished + unplayed == suite.issued == 30 * repeats
    recorded = read_episodes(tmp_path / "run")
    assert len(recorded) == suite.scored + unfinished
    assert sum(episode.tokens for episode in recorded) == 3 * policy.calls, "what was paid for is on record"
    assert read_report(tmp_path / "run") == report
    assert unfinished <= concurrency
    assert policy.calls <= affordable + concurrency - 1, "one call per slot at most"
    spent = present(report.spent)
    assert (spent.replies, spent.dollars) == pytest.approx((policy.calls, policy.calls * price))
    truth = present(whole.suite.score)
    if not report.incomplete:  # the calls that were running were the last ones
        assert (suite.score, report.stopped) == (truth, "")
        return
    assert policy.calls >= affordable
    assert_never_the_mean_of_all(report, truth.mean, "usd" if unit.dollars else "tokens", known=kind is not Undeclared)


def assert_never_the_mean_of_all(report: Report, truth: float, unit: str, *, known: bool) -> None:
    suite = report.suite
    assert suite.score is suite.success is None
    assert not suite.pass_at
    assert not suite.metrics
    told = f"{suite.scored} of {suite.issued}"
    for shown in (report_markdown(report), report_html(report), str(report), report._repr_html_()):
        assert told in shown
        assert "interval 0" not in shown
    for shown in (report_markdown(report), str(report)):
        first = shown.partition("\n")[0]
        assert all(words in first for words in (told, "it cost"))
        assert re.search(rf"budget of [\d.]+{unit}", first)
        assert "$0.00 " not in first
    if (part := present(suite.partial).score) is None:
        assert not suite.scored
        return
    assert (part.episodes, part.asked) == (suite.scored, suite.issued)
    assert ((part.low is None), (part.high is None)) == (not known, not known)
    if part.low is not None and part.high is not None:
        assert part.low <= truth <= part.high
    assert f"{part.mean:.2f} of {told}" in leaderboard_page([entry_of(report)])


@pytest.mark.parametrize("calls", range(20, 40))
def test_rounding_buys_no_further_call(calls: int) -> None:
    policy = Payer(0.0001)
    evaluate(tasks(Walk, 60), policy, budget=Budget(dollars=calls * 0.0001), concurrency=1)
    assert policy.calls == calls


def test_a_larger_budget_gives_the_report_of_a_run_that_never_stopped(tmp_path: Path) -> None:
    given = tasks(Walk7, 20)
    for limit in (25, 60, 10_000):
        report = evaluate(given, Payer(0.01), budget=Budget(dollars=limit * 0.01), concurrency=4, out=tmp_path / "cut")
    whole = evaluate(given, Payer(0.01), out=tmp_path / "whole")
    assert not report.incomplete
    assert (report.suite.score, report.suite.success) == (whole.suite.score, whole.suite.success)
    assert report.stopped == report.go_on == ""
    assert present(report.spent).replies > present(whole.spent).replies, "episodes that were cut are paid for twice"
    keys = [(episode.group, episode.member) for episode in read_episodes(tmp_path / "cut")]
    assert sorted(keys) == [(group, 0) for group in range(20)]


def test_a_run_without_money_stays_as_it_is_when_it_is_repeated(tmp_path: Path) -> None:
    runs = [evaluate(tasks(Walk7, 20), Payer(0.01), budget=Budget(dollars=0.25), concurrency=4, out=tmp_path) for _ in range(2)]
    assert runs[0].suite.failures["budget"] > 0
    assert runs[0] == runs[1]
    assert msgspec.json.decode((tmp_path / "report.json").read_bytes())["suite"]["score"] is None


@given(
    values=st.lists(st.lists(st.floats(-2.0, 3.0), min_size=2, max_size=2), min_size=2, max_size=12),
    hidden=st.data(),
    strata=st.integers(1, 3),
)
@settings(max_examples=150, deadline=None)
def test_the_range_holds_the_mean_whatever_the_missing_episodes_score(
    values: list[list[float]], hidden: st.DataObject, strata: int
) -> None:
    every = [Score((f"family {task % strata}",), task, value) for task, repeats in enumerate(values) for value in repeats]
    kept = hidden.draw(st.lists(st.booleans(), min_size=len(every), max_size=len(every)))
    scored = [score for score, keep in zip(every, kept, strict=True) if keep]
    missing = [MissingScore(score.path, score.task, (-2.0, 3.0)) for score, keep in zip(every, kept, strict=True) if not keep]
    part = partial_mean(scored, missing)
    if part is None:
        assert not scored
        return
    assert present(part.low) - 1e-9 <= TaskMeans.of(every).mean <= present(part.high) + 1e-9
    assert (part.episodes, part.missing) == (len(scored), len(missing))


def test_the_range_covers_the_true_mean_although_the_long_episodes_are_cut() -> None:
    """400 evaluations of 60 tasks. Hard tasks take long, and the half that takes longest is cut."""
    held = narrow = 0
    for run in range(400):
        rng = random.Random(run)
        chances = [rng.random() for _ in range(60)]
        scores = [Score((), task, float(rng.random() < chance)) for task, chance in enumerate(chances)]
        order = sorted(range(60), key=lambda task: chances[task], reverse=True)
        scored, cut = [scores[task] for task in order[:30]], [MissingScore((), task, (0.0, 1.0)) for task in order[30:]]
        part = present(partial_mean(scored, cut))
        held += present(part.low) <= 0.5 <= present(part.high)
        ordinary = mean_interval(scored)
        narrow += ordinary.low <= 0.5 <= ordinary.high
    assert held >= 380
    assert narrow <= 200, "the ordinary interval of the part misses the mean of all"


def test_the_range_becomes_the_ordinary_interval_when_nothing_is_missing() -> None:
    scores = [Score((), task, float(task % 3 == 0)) for task in range(30)]
    part, whole = present(partial_mean(scores, [])), mean_interval(scores)
    assert (part.low, part.high) == (whole.low, whole.high)


def test_an_environment_that_was_not_reached_is_in_the_range() -> None:
    given = [Task("a:A-v0", 0), Task("a:B-v0", 0)]
    scored = episode(given[0], 1.0)
    suite = report_on([scored], asked=Asked(given, 1, {"a:A-v0": (0.0, 1.0), "a:B-v0": (-1.0, 1.0)})).suite
    assert present(partial_score(suite).low) <= 0.0, "B may score -1"
    half_known = partial_score(report_on([scored], asked=Asked(given, 1, {"a:A-v0": (0.0, 1.0)})).suite)
    assert half_known.low is half_known.high is None


def test_an_environment_that_pays_more_than_it_declares_gives_no_range() -> None:
    given = [Task("a:A-v0", 0), Task("a:A-v0", 1)]
    suite = report_on([episode(given[0], 1.5)], asked=Asked(given, 1, {"a:A-v0": (0.0, 1.0)})).suite
    assert partial_score(suite).low is None


def episode(task: Task, reward: float) -> EpisodeScore:
    name = task_name(task, "")
    return EpisodeScore(task.env, name, 0, 0, "", "p", reward, None, "terminated", "", "", 0, 1, 0, 0, 0.0, 0.0, ())


def test_a_report_cannot_hold_the_mean_of_a_part_as_a_score(tmp_path: Path) -> None:
    evaluate(tasks(Walk, 3), Payer(0.0), out=tmp_path)
    file = tmp_path / "report.json"
    data = json.loads(file.read_bytes())
    data["suite"]["issued"] = 4
    file.write_text(json.dumps(data))
    with pytest.raises(SchemaError, match="3 of 4 episodes have a score, and their mean is not the mean of all"):
        read_report(tmp_path)


@pytest.mark.parametrize(
    ("id", "limit", "bounds"),
    [(GUESS, None, (-0.1, 1.0)), ("math:Sums", None, (0.0, 1.0)), (f"{__name__}:Stepwise", 3, (-6.0, 3.0)),
     (f"{__name__}:Stepwise", None, None), ("remote:http://host:1#math:Sums", None, None)],
)  # fmt: skip
def test_the_bounds_of_a_score(id: str, limit: int | None, bounds: tuple[float, float] | None) -> None:
    known = spec(id)
    assert score_ranges([known], limit).get(known.id) == bounds


class Stepwise(Walk):
    score_range = (-float("inf"), float("inf"))
    reward_range = (-2.0, 1.0)


def test_wrappers_of_others_may_change_rewards_so_nothing_is_known() -> None:
    known = [spec(GUESS)]
    assert score_ranges(known, wrappers=["TurnLimit?turns=3", partial(TurnLimit, turns=3)])
    assert score_ranges(known, wrappers=["my_module:Doubled"]) == {}
    assert score_ranges(known, wrappers=[lambda env: env]) == {}
    assert not score_ranges([replace(spec(GUESS), wrappers=(lambda env: env,))])


def test_a_built_in_wrapper_of_an_id_leaves_its_range() -> None:
    pytest.importorskip("math_verify")
    assert score_ranges([spec("eval:AMC-python")])


# ------------------------------------------------------------------------------------------------ comparison, command line


def test_a_stopped_run_is_not_compared_as_if_it_were_complete(tmp_path: Path) -> None:
    given = tasks(Walk7, 30)
    evaluate(given, Payer(0.01), budget=Budget(dollars=0.4), concurrency=4, out=tmp_path / "cut")
    evaluate(given, Payer(0.01), out=tmp_path / "whole")
    result = compare_runs(tmp_path / "cut", tmp_path / "whole")
    assert isinstance(result, PartialComparison)
    assert result.difference.mean == 0.0
    assert present(result.difference.low) < -0.2 < 0.2 < present(result.difference.high)
    text = comparison_text(result, "cut", "whole")
    assert text.startswith("incomplete: cut has ")
    assert not re.search("p [=<]", text)
    assert not isinstance(compare_runs(tmp_path / "whole", tmp_path / "whole"), PartialComparison)
    assert isinstance(compare_runs(tmp_path / "cut", tmp_path / "whole", success=True), PartialComparison)


def test_a_run_that_was_killed_is_known_to_be_incomplete_without_a_report(tmp_path: Path) -> None:
    given = tasks(Walk, 10)
    evaluate(given, Payer(0.0), out=tmp_path / "run")
    lines = (tmp_path / "run" / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "run" / "trajectories.jsonl").write_bytes(b"".join(lines[:6]))
    (tmp_path / "run" / "report.json").unlink()
    result = compare_runs(tmp_path / "run", tmp_path / "run")
    assert isinstance(result, PartialComparison)
    assert (result.first.episodes, result.first.asked) == (6, 10)


PAYERS = """
from palestra.trajectory import Completion, Usage
class Payer:
    name = 'payer'
    async def act(self, conversation):
        return Completion('\\\\boxed{5}', usage=Usage(7, 3, 0.000003))
"""


def test_the_command_says_what_it_cost_and_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("payers.py").write_text(PAYERS)
    typed = ["eval", "payers:Payer", "-e", GUESS, "-n", "40", "-o", "run", "--budget", "0.0001usd"]
    monkeypatch.setattr("sys.argv", ["palestra", *typed])
    done = CliRunner().invoke(app, typed, catch_exceptions=False)
    assert done.exit_code == 1
    first = done.stdout.splitlines()[0]
    assert "of 40 episodes asked for have a score" in first
    assert "the budget of 0.0001usd ran out; it cost $0.0001" in first
    again = next(line for line in done.stdout.splitlines() if "To play what is missing" in line).partition("type: palestra ")[2]
    assert again.startswith(f"eval payers:Payer -e {GUESS} -n 40 -o run --budget 0.000")
    done = CliRunner().invoke(app, again.split(), catch_exceptions=False)
    assert done.exit_code == 0, done.stdout
    assert "40 of 40 episodes" in done.stdout


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0.0, "$0.00"), (0.000021, "$0.000021"), (0.0001, "$0.0001"), (0.126, "$0.13"), (0.999, "$1.00"), (1234.5, "$1,234.50")],
)
def test_a_small_cost_is_not_nothing(amount: float, text: str) -> None:
    assert dollars(amount) == text


def test_a_budget_that_is_no_budget_is_refused() -> None:
    with pytest.raises(UsageError, match="parse_budget"):
        evaluate(GUESS, "random", n=1, budget="5usd")  # type: ignore[arg-type]


def test_a_report_is_a_short_table_in_python() -> None:
    report = evaluate([GUESS, "math:Sums"], "oracle", n=3)
    lines = str(report).splitlines()
    assert lines[0] == "oracle (privileged)"
    assert [line.split()[0] for line in lines[2:5]] == [GUESS, "math:Sums", "all"]
    assert max(map(len, lines)) < 120
    assert len(lines) < 10


def test_a_progress_line_may_be_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    evaluate(GUESS, "oracle", n=3, progress=True)
    assert "evaluating 3/3" in capsys.readouterr().err
    evaluate(GUESS, "oracle", n=3, progress=False)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("counts", "group_size", "ranges"),
    [({"a": 10**12}, 1, {}), ({"a": -1}, 1, {}), ({"a": 1}, 0, {}), ({"a": 1}, 1, {"a": (1.0, 0.0)}), ({"b": 1}, 1, {}),
     ({"a": 1, "b": 0}, 10**9, {})],
)  # fmt: skip
def test_settings_of_a_folder_that_cannot_be_are_refused(
    counts: dict[str, int], group_size: int, ranges: dict[str, tuple[float, float]]
) -> None:
    with pytest.raises(SchemaError):
        Asked.recorded(counts, group_size, ranges, {0: task_name(Task("a"), "")})


@pytest.mark.parametrize("price", [float("nan"), float("inf"), -1.0])
def test_a_price_that_no_budget_can_count_is_a_failure_of_the_policy(price: float) -> None:
    policy = Payer(price)
    report = evaluate(tasks(Walk, 40), policy, budget=Budget(dollars=1.0), concurrency=2)
    assert policy.calls < 20, "the evaluation stops early"
    assert report.suite.failures["policy"] == report.suite.issued - report.suite.failures["not played"]
    assert any("the budget would not hold" in cause for cause in report.suite.causes)
