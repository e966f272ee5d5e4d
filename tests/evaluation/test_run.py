import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from tests.evaluation.present import partial_score, present

import palestra
from palestra import Env, Step, Task, Tool
from palestra.core import Conversation
from palestra.durable import Inside
from palestra.errors import MissingExtra, UsageError
from palestra.evaluation import (
    Budget,
    Progress,
    evaluate,
    evaluate_async,
    parse_budget,
    read_episodes,
    read_report,
    regrade,
    report_markdown,
)
from palestra.evaluation.budget import BudgetMeter
from palestra.foundation.encoding import encode_json
from palestra.registry import Need, unregister
from palestra.rollouts import AnyPolicy, read_trajectories
from palestra.tools import tool
from palestra.trajectory import Completion, StopReason
from palestra.wrappers import TurnLimit

GUESS = "game:GuessTheNumber-v0-easy"


class Coin(Env):
    """Ends after three moves; tasks with a seed that 3 divides are not solved."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.left = 3
        return "go", {}

    def step(self, action: str) -> Step:
        self.left -= 1
        solved = self.left == 0 and self.task.seed % 3 > 0
        return Step("on", float(solved), self.left == 0, False, {"success": solved})


def untimed(folder: Path) -> Any:
    """A report without what clocks say."""

    def strip(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in ("seconds", "act_seconds")}
        return [strip(item) for item in value] if isinstance(value, list) else value

    return strip(json.loads((folder / "report.json").read_bytes()))


def keys(folder: Path) -> Counter[tuple[int, int]]:
    return Counter((episode.group, episode.member) for episode in read_episodes(folder))


# -------------------------------------------------------------------------------------------------------------- the panel


def test_every_task_of_every_environment_is_tried_as_often_as_asked() -> None:
    report = evaluate([GUESS, "game:Sudoku-v0-easy"], "oracle", n=5, group_size=3)
    score = present(report.suite.score)
    assert report.policy == "oracle"
    assert (report.suite.issued, score.tasks, score.mean) == pytest.approx((30, 10, 1.0))


def test_patterns_classes_and_tasks() -> None:
    assert {section.name for section in evaluate("game:*-easy", "random", n=1).envs} >= {GUESS}
    assert evaluate(Coin, lambda text: "a", n=4).suite.issued == 4
    assert evaluate([Task(GUESS, 5), Task(GUESS, 6)], "random", group_size=2).suite.issued == 4


@pytest.mark.parametrize("max_turns", [1, 2])
def test_max_turns_truncates_the_episodes_of_an_evaluation(tmp_path: Path, max_turns: int) -> None:
    evaluate(GUESS, lambda text: "\\boxed{99}", n=3, max_turns=max_turns, out=tmp_path)
    played = list(read_trajectories(tmp_path / "trajectories.jsonl"))
    assert {(trajectory.stop, len(trajectory.turns)) for trajectory in played} == {(StopReason.TURN_LIMIT, max_turns)}


def test_wrappers_are_around_every_environment_and_on_the_record(tmp_path: Path) -> None:
    limit = partial(TurnLimit, turns=1)
    report = evaluate([GUESS, "game:Sudoku-v0-easy"], "random", n=2, wrappers=[limit], out=tmp_path)
    assert {len(trajectory.turns) for trajectory in read_trajectories(tmp_path / "trajectories.jsonl")} == {1}
    assert 'TurnLimit({"turns":1})' in report.about["wrappers"]
    with pytest.raises(UsageError, match="wrappers was"):
        evaluate([GUESS, "game:Sudoku-v0-easy"], "random", n=2, out=tmp_path)


def test_a_pattern_leaves_out_what_cannot_run_here_and_says_so() -> None:
    lacking = Need(label="Nothing", module="no_such_module", extra="nothing")
    palestra.register("lack:Coin-v0", Coin)
    palestra.register("lack:Missing-v0", Coin, needs=[lacking])
    try:
        report = evaluate("lack:*", lambda text: "a", n=2)
        assert [section.name for section in report.envs] == ["lack:Coin-v0"]
        assert "lack:Missing-v0" in report_markdown(report)
        with pytest.raises(UsageError, match="lack:Missing-v0 cannot run here"):
            evaluate("lack:Miss*", lambda text: "a", n=2)
        with pytest.raises(MissingExtra, match="Nothing"):
            evaluate("lack:Missing-v0", lambda text: "a", n=2)
    finally:
        unregister("lack:Coin-v0")
        unregister("lack:Missing-v0")


def test_the_same_tasks_whatever_else_is_in_the_suite(tmp_path: Path) -> None:
    evaluate(GUESS, "oracle", n=4, out=tmp_path / "a")
    evaluate([GUESS, "game:Sudoku-v0-easy"], "oracle", n=4, out=tmp_path / "b")
    tasks = [{episode.task for episode in read_episodes(tmp_path / name) if episode.env == GUESS} for name in "ab"]
    assert tasks[0] == tasks[1]


@pytest.mark.parametrize(("envs", "options"), [("game:Nothing*", {}), ([], {}), (GUESS, {"n": 0}), (GUESS, {"group_size": 0})])
def test_mistakes_are_told(envs: Any, options: Any) -> None:
    with pytest.raises(UsageError):
        evaluate(envs, "random", **options)


async def test_inside_a_running_loop() -> None:
    assert (await evaluate_async(GUESS, "oracle", n=2)).suite.scored == 2
    assert evaluate(GUESS, "oracle", n=2).suite.scored == 2


def test_an_interrupt_in_a_notebook_stops_the_evaluation() -> None:
    acting = threading.Event()

    class Hanging:
        async def act(self, conversation: Conversation) -> Completion:
            acting.set()
            await asyncio.Event().wait()
            raise AssertionError

    def interrupt() -> None:
        assert acting.wait(120)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    async def notebook() -> None:
        with pytest.raises(KeyboardInterrupt):
            evaluate("game:GuessTheNumber-v0-easy", Hanging(), n=1, deadline=600.0)

    helper = threading.Thread(target=interrupt)
    helper.start()
    loop = asyncio.new_event_loop()  # not asyncio.run, which would take the signal itself
    loop.run_until_complete(notebook())  # pytest's time limit comes before the deadline of the episode
    loop.close()
    helper.join()


def test_progress_is_told_after_each_episode() -> None:
    seen: list[tuple[int, int, int]] = []

    def watch(progress: Progress) -> None:
        assert progress.report().suite.score is not None
        seen.append((len(progress.episodes), progress.total, progress.failed))

    evaluate(GUESS, "random", n=3, watch=watch)
    assert seen == [(1, 3, 0), (2, 3, 0), (3, 3, 0)]


# ------------------------------------------------------------------------------------------------------------- the folder


def test_a_finished_run_is_not_played_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def policy(text: str) -> str:
        asked.append(text)
        return "a"

    first = evaluate(Coin, policy, n=6, group_size=2, out=tmp_path)
    assert encode_json(evaluate(Coin, policy, n=6, group_size=2, out=tmp_path)) == encode_json(first)
    assert len(asked) == 6 * 2 * 3
    assert read_report(tmp_path) == first
    assert "<svg" in (tmp_path / "report.html").read_text()


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if len(progress.episodes) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(GUESS, "random", n=10, group_size=2, out=tmp_path / "cut", watch=stop, concurrency=3)
    assert len(read_episodes(tmp_path / "cut")) == 7
    with open(tmp_path / "cut" / "trajectories.jsonl", "ab") as file:
        file.write(b'{"task": torn')
    evaluate(GUESS, "random", n=10, group_size=2, out=tmp_path / "cut")
    evaluate(GUESS, "random", n=10, group_size=2, out=tmp_path / "whole")
    assert set(keys(tmp_path / "cut").values()) == {1}
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")


@pytest.mark.parametrize(
    "change", [{"n": 5}, {"group_size": 2}, {"seed": 1}, {"max_turns": 2}, {"about": {"temperature": "0"}}]
)
def test_another_evaluation_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    evaluate(GUESS, "random", n=4, out=tmp_path)
    with pytest.raises(UsageError, match="choose another folder"):
        evaluate(GUESS, "random", **{"n": 4, "out": tmp_path, **change})
    with pytest.raises(UsageError, match='policy was "random" and is now "oracle"'):
        evaluate(GUESS, "oracle", n=4, out=tmp_path)


def test_somebody_elses_trajectories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "trajectories.jsonl").write_bytes(b"{}\n")
    with pytest.raises(UsageError, match=r"holds results but no config"):
        evaluate(GUESS, "random", n=1, out=tmp_path)


class Duel(Env):
    """Two players, one move each; the second wins."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.moves = 0
        return "go", {"player": "first"}

    def step(self, action: str) -> Step:
        self.moves += 1
        if self.moves == 1:
            return Step("go", 0.0, False, False, {"player": "second"})
        return Step("over", 1.0, True, False, {"rewards": {"first": 0.0, "second": 1.0}})

    def sample_random_action(self) -> str:
        return "a"


def test_several_players() -> None:
    both: AnyPolicy = {"first": lambda text: "a", "second": "random"}
    with pytest.raises(UsageError, match="player must name the player to score"):
        evaluate(Duel, both, n=3)
    report = evaluate(Duel, both, n=3, player="second")
    assert (report.policy, present(report.suite.score).mean, report.suite.issued, report.suite.scored) == ("random", 1.0, 3, 3)
    suite = evaluate(Duel, "random", n=3).suite
    assert (present(suite.score).mean, suite.issued, suite.scored) == (0.5, 6, 6)


# ------------------------------------------------------------------------------------------------------------- the budget


@pytest.mark.parametrize(
    ("text", "budget"),
    [("5usd", Budget(dollars=5.0)), ("$2.50", Budget(dollars=2.5)), ("200_000 tokens", Budget(tokens=200_000)),
     ("1.5Mtokens", Budget(tokens=1_500_000)), ("3ktok", Budget(tokens=3000))],
)  # fmt: skip
def test_budgets_are_read(text: str, budget: Budget) -> None:
    assert parse_budget(text) == budget


@pytest.mark.parametrize("text", ["5", "usd", "-1usd", "5eur", ""])
def test_what_is_no_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a budget"):
        parse_budget(text)


def test_a_torn_line_of_the_log_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b'{"prompt_tokens":10,"dollars":0.5}\n{"prompt_to')
    meter = BudgetMeter(Budget(), Inside(tmp_path) / "log")
    meter.close()
    assert (meter.ledger.prompt_tokens, meter.ledger.dollars) == (10, 0.5)


# --------------------------------------------------------------------------------------------------------------- kill -9

SCRIPT = """
import asyncio, sys
from palestra.evaluation import evaluate
from palestra.policies import RandomPolicy

class Slow(RandomPolicy):
    async def act(self, conversation):
        await asyncio.sleep(0.01)
        return await super().act(conversation)

evaluate(["game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy"], Slow(), n=20, group_size=2, out=sys.argv[1], concurrency=3)
"""


def start(folder: Path) -> "subprocess.Popen[bytes]":
    source = str(Path(palestra.__file__).parents[1])
    return subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], env={**os.environ, "PYTHONPATH": source})


def kill_when_it_has_written(folder: Path, process: "subprocess.Popen[bytes]", more: int) -> None:
    """Kill at a random moment after ``more`` further bytes are on disk, or let it end."""
    file = folder / "trajectories.jsonl"
    size = (file.stat().st_size if file.exists() else 0) + more
    until = monotonic() + 300
    while process.poll() is None and monotonic() < until:
        if file.exists() and file.stat().st_size >= size:
            process.send_signal(signal.SIGKILL)
            break
        sleep(0.001)
    process.wait()


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uncut")
    assert start(folder).wait() == 0
    return folder


@pytest.mark.parametrize("kills", [2, 30])
@pytest.mark.timeout(400)
@pytest.mark.slow
def test_killed_and_resumed_is_the_run_not_killed(tmp_path: Path, uncut: Path, kills: int) -> None:
    rng = random.Random(kills)
    whole = (uncut / "trajectories.jsonl").stat().st_size
    for _ in range(kills):
        kill_when_it_has_written(tmp_path, start(tmp_path), rng.randrange(1, 2 * whole // (kills + 1)))
    assert start(tmp_path).wait() == 0
    assert keys(tmp_path) == {(group, member): 1 for group in range(40) for member in range(2)}
    assert untimed(tmp_path) == untimed(uncut)


class SelfContaining(Coin):
    """Every third task returns ``info`` that contains itself."""

    def step(self, action: str) -> Step:
        info: dict[str, Any] = {}
        if self.task.seed % 3 == 0:
            info["info"] = info
        return Step("", 1.0, True, False, info)


class Huge(Coin):
    """Two of three tasks pay more than a sum can hold."""

    def step(self, action: str) -> Step:
        return Step("", (1e308, -1e308, 1.0)[self.task.seed % 3], True, False, {})


@pytest.mark.parametrize(("kind", "bad"), [(SelfContaining, 10), (Huge, 20)])
def test_one_environment_does_not_cost_the_evaluation(tmp_path: Path, kind: type[Env], bad: int) -> None:
    """Self-containing ``info`` ended the run with a RecursionError at every resume; rewards of 1e308 left no report."""
    tasks = [Task(f"{__name__}:{kind.__name__}", seed) for seed in range(30)]
    for _ in range(2):
        report = evaluate(tasks, lambda _: "hello", out=tmp_path)
        assert report.suite.failures == {"env": bad}
        assert report.suite.scored == 30 - bad
        assert partial_score(report.suite).mean == pytest.approx(1.0)
        assert len(read_episodes(tmp_path)) == 30


# ------------------------------------------------------------------------------------------------------ tools and wrappers


def shouted(text: str) -> str:
    """A tool for the tests below."""
    return text.upper()


SHOUTED = tool(shouted)


def calls_once(text: str) -> str:
    if "HELLO" in text:
        return "a"
    return '<tool_call>{"name": "shouted", "arguments": {"text": "hello"}}</tool_call>'


def test_tools_are_lent_by_name_or_as_objects_and_on_the_record(tmp_path: Path) -> None:
    lent_by: dict[str, Tool | str] = {"named": f"{__name__}:SHOUTED", "object": SHOUTED}
    for run, lent in lent_by.items():
        evaluate(Coin, calls_once, n=2, tools=[lent], out=tmp_path / run)
        played = list(read_trajectories(tmp_path / run / "trajectories.jsonl"))
        assert all("HELLO" in str(trajectory.turns[1].observation) for trajectory in played)
        assert "shouted" in json.loads((tmp_path / run / "config.json").read_bytes())["tools"][0].lower()


def test_an_unknown_tool_or_wrapper_is_refused_before_the_folder_is_made(tmp_path: Path) -> None:
    for wrong in ({"tools": ["hammer"]}, {"wrappers": ["Hammer"]}):
        with pytest.raises(UsageError, match=r"(tool|wrapper) = .* is unknown"):
            evaluate(GUESS, "random", n=1, out=tmp_path / "run", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "run").exists()


def test_a_run_with_wrappers_is_regraded_with_the_same_wrappers(tmp_path: Path) -> None:
    evaluate(GUESS, "random", n=2, wrappers=["TurnLimit?turns=1"], out=tmp_path)
    with pytest.raises(UsageError, match=r"regrade it with --wrapper TurnLimit\?turns=1"):
        regrade(tmp_path)
    assert regrade(tmp_path, wrappers=["TurnLimit?turns=1"]).regraded == 2
