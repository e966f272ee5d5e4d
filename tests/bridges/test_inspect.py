"""Inspect's own ``eval()`` on Palestra's environments, and Inspect's tasks in Palestra."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai")

import inspect_ai
from inspect_ai.log import read_eval_log
from inspect_ai.model import ModelOutput, ModelUsage, get_model

import palestra
from palestra import check_env, collect, make
from palestra.bridges.inspect import inspect_task
from palestra.bridges.rows import task_of
from palestra.errors import UsageError
from palestra.interchange import LogHeader, write_inspect
from palestra.rollouts.supply import tasks_of
from palestra.trajectory import Finish
from tests.bridges.abandoned import EPISODES, HELD, all_closed
from tests.bridges.bridging import ROUGH, Writer, assert_rough, written

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs

GAME = "game:GuessTheNumber-v0-easy"
LONG = "game:GuessTheNumber-v0-hard"
HERE = "inspect:tests.bridges.inspect_tasks"


def answered(reply: str, cut: bool = False) -> ModelOutput:
    output = ModelOutput.from_content("mockllm/model", reply, stop_reason="max_tokens" if cut else "stop")
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else Inspect downloads a tokenizer
    return output


def evaluated(task: Any, reply: Any, tmp_path: Path, **settings: Any) -> Any:
    model = get_model("mockllm/model", custom_outputs=reply, memoize=False)
    (log,) = inspect_ai.eval(task, model=model, display="none", log_dir=str(tmp_path), **settings)
    return log


def test_two_hundred_episodes_with_cuts_and_failures_are_those_of_palestra(tmp_path: Path) -> None:
    def reply(messages: Any, *_: Any) -> ModelOutput:
        said = written([one.text for one in messages])
        return answered(said.text, cut=said.finish is Finish.LENGTH)

    tasks = tasks_of(ROUGH, 200, 3)[0]
    log = evaluated(inspect_task(ROUGH, n=200, seed=3), reply, tmp_path, fail_on_error=False)
    assert log.status == "success"
    ours = collect(tasks, Writer(), retries=0)
    assert_rough(ours)
    assert len(log.samples) == len(ours) == 200
    by_task = {trajectory.task: trajectory for trajectory in ours}
    for sample in log.samples:
        mine = by_task[task_of(sample.metadata)]
        if mine.stop.failed:
            assert (sample.scores, "broken on purpose" in sample.error.message) == ({}, True)
            continue
        said = [(one.role, one.text) for one in sample.messages]
        turns = [(("user", turn.observation), ("assistant", turn.completion.text)) for turn in mine.turns]
        assert said == [part for turn in turns for part in turn]
        score = sample.scores["palestra_outcome"]
        assert score.value == {"reward": mine.reward, "success": float(bool(mine.success))}
        assert score.metadata == {"stop": str(mine.stop), "rewards": [turn.reward for turn in mine.turns]}
    mean, scored = log.results.scores[0].metrics["mean"].value, [one.reward for one in ours if one.reward is not None]
    assert mean == pytest.approx(sum(scored) / len(scored)), "a failed episode is in the mean"


def test_a_limit_of_inspect_reaches_inspect(tmp_path: Path) -> None:
    log = evaluated(inspect_task(LONG, n=1), lambda *_: answered("\\boxed{1}"), tmp_path, message_limit=3)
    assert log.samples[0].limit.type == "message"


def test_retries_are_left_to_inspect() -> None:
    with pytest.raises(UsageError, match="retry_on_error=N"):
        inspect_task(GAME, n=1, retries=2)


def test_a_thousand_episodes_that_a_limit_of_inspect_ends_leave_nothing(tmp_path: Path) -> None:
    evaluated(inspect_task(LONG, n=1), lambda *_: answered("\\boxed{1}"), tmp_path)  # loads what Inspect loads once
    with all_closed():
        log = evaluated(inspect_task(HELD, n=EPISODES), lambda *_: answered("x"), tmp_path, message_limit=3)
    assert [sample.limit.type for sample in log.samples] == ["message"] * EPISODES
    assert {sample.scores["palestra_outcome"].metadata["stop"] for sample in log.samples} == {"limit"}


# ------------------------------------------------------------------------------------------------------------ theirs in ours


def test_samples_are_tasks_and_scores_are_inspects(tmp_path: Path) -> None:
    def solve(text: str) -> str:
        number = int(text.split()[2])
        return str(2 * number if number % 3 else 7)

    log = evaluated("tests/bridges/inspect_tasks.py@sums", lambda messages, *_: answered(solve(messages[-1].text)), tmp_path)
    report = palestra.evaluate(f"{HERE}:sums", solve, n=100)
    assert report.suite.issued == len(log.samples) == 10  # each sample once
    assert report.suite.score is not None
    assert report.suite.score.mean == pytest.approx(log.results.scores[0].metrics["accuracy"].value)
    assert report.suite.metrics["score_1"].mean == pytest.approx(log.results.scores[1].metrics["accuracy"].value)


def test_the_conversation_is_the_solvers() -> None:
    (played,) = collect([palestra.Task(f"{HERE}:sums?count=3", 0, index=2)], lambda text: "4")
    assert played.turns[0].observation == "What is 2 + 2?"
    assert played.info["opening"] == [{"role": "system", "content": "Answer briefly."}]
    assert (played.reward, played.success) == (1.0, True)
    (played,) = collect([palestra.Task(f"{HERE}:shown", 0)], lambda text: "4")
    assert [one["role"] for one in played.info["opening"]] == ["system", "user", "assistant"]
    (played,) = collect([palestra.Task(f"{HERE}:choices", 0)], lambda text: "ANSWER: B" if "B) pear" in text else "")
    assert played.reward == 1.0
    (played,) = collect([palestra.Task(f"{HERE}:asked_twice", 0)], lambda text: "yes" if "sure" in text else "no")
    assert [turn.observation for turn in played.turns] == ["Say yes.", "Are you sure?"]
    assert played.reward == 1.0


def test_what_a_solver_writes_into_a_sample_is_gone_in_the_next_episode() -> None:
    with make(f"{HERE}:writes_metadata") as env:
        shown = [env.reset(seed=0)[0] for _ in range(3)]
    assert shown == ["Asked 1 times. Say yes."] * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("boxed", "sandbox"),
        ("undecorated", "function with @task"),
        ("with_tools", "lends tools"),
        ("never_asks", "never called generate"),
    ],
)
def test_what_palestra_cannot_play_says_why(name: str, message: str) -> None:
    with pytest.raises((UsageError, palestra.errors.EnvError), match=message):
        make(f"{HERE}:{name}").reset(seed=0)


def test_the_check_passes() -> None:
    report = check_env(f"{HERE}:sums", n=5)
    assert [finding for finding in report.findings if finding.status == "fail"] == []


def test_inspect_reads_our_log(tmp_path: Path) -> None:
    played = collect(tasks_of(ROUGH, 16, 3)[0], Writer(), retries=0)
    write_inspect(played, tmp_path / "log.json", LogHeader(task="guesses", metrics={"mean": 0.25}))
    log = read_eval_log(str(tmp_path / "log.json"))
    assert (log.status, len(log.samples), log.results.scores[0].metrics["mean"].value) == ("success", len(played), 0.25)
    assert [sample.error is not None for sample in log.samples] == [one.stop.failed for one in played]
    scored = [sample.scores["reward"].value for sample in log.samples if sample.scores]
    assert scored == [one.reward for one in played if one.reward is not None]
