"""skyrl-gym's environments in Palestra: rows are tasks, prompts of several messages, the rewards of skyrl-gym."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("skyrl_gym")

import skyrl_gym

import palestra
from palestra import Task, check_env, collect, make
from palestra.errors import UsageError
from tests.bridges.bridging import outcome

pytestmark = [pytest.mark.bridges, pytest.mark.slow, pytest.mark.filterwarnings("default")]  # the warnings are theirs


def row(number: int) -> dict[str, Any]:
    prompt = [
        {"role": "system", "content": "Calculate."},
        {"role": "user", "content": f"What is {number} + 1? End with #### N."},
    ]
    return {"prompt": prompt, "reward_spec": {"method": "rule", "ground_truth": str(number + 1)}}


@pytest.fixture
def rows(tmp_path: Path) -> str:
    file = tmp_path / "train.jsonl"
    file.write_text("".join(json.dumps(row(number)) + "\n" for number in range(8)))
    return str(file)


def solve(text: str) -> str:
    number = int(text.split()[2])
    return f"#### {number + 1 if number % 2 else 0}"


def test_rewards_are_those_of_skyrl_gym(rows: str) -> None:
    report = palestra.evaluate(f"skyrl:gsm8k?rows={rows}", solve, n=100)
    expected = []
    for number in range(8):
        env = skyrl_gym.make("gsm8k", env_config={}, extras=row(number))
        prompt, _ = env.init(row(number)["prompt"])
        expected.append(env.step(solve(prompt[-1]["content"]))["reward"])
    assert report.suite.issued == 8
    assert report.suite.score is not None
    assert report.suite.score.mean == pytest.approx(sum(expected) / 8)
    assert 0 < sum(expected) < 8


def test_a_row_may_be_the_params_of_a_task() -> None:
    (played,) = collect([Task("skyrl:gsm8k", 0, params=row(1))], lambda text: "#### 2")
    assert played.info["opening"] == [{"role": "system", "content": "Calculate."}]
    assert (played.turns[0].observation, played.reward) == ("What is 1 + 1? End with #### N.", 1.0)


def test_what_cannot_be_played_says_why(rows: str, tmp_path: Path) -> None:
    (tmp_path / "broken.jsonl").write_text('{"prompt": "text"}\n')
    for id, message in [
        ("skyrl:gsm8k", "needs a row"),
        (f"skyrl:gsm8k?rows={tmp_path}/none.jsonl", "needs a file"),
        (f"skyrl:gsm8k?rows={tmp_path}/broken.jsonl", "row 1"),
        (f"skyrl:nothing?rows={rows}", r"skyrl-gym \(tried with 0\.4\.0\) cannot make"),
    ]:
        with pytest.raises(UsageError, match=message):
            make(id).reset(seed=0)


def test_the_check_passes(rows: str) -> None:
    # A row is a task, and the answer is text: there is nothing to draw at random, no limit of turns, and no picture.
    skipped = ["ends", "oracle-solves", "random-plays", "constant-answer", "answer-hidden", "fork", "render", "quick"]
    assert outcome(check_env(f"skyrl:gsm8k?rows={rows}", n=5)) == {"skip": skipped}
