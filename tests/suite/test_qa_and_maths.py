"""Single-turn questions and mathematics on small data sets of our own."""

import base64
import json
from pathlib import Path

import pytest

import palestra
from palestra.errors import UsageError
from palestra.suite.data import load, loader
from palestra.trajectory import Image, Task

MATHS = [("What is 1/2 + 1/4?", "\\frac{3}{4}"), ("What is 3 * 14?", "42"), ("Solve x^2 = 4, x > 0.", "\\boxed{2}")]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    loader._load.cache_clear()
    return tmp_path


def put(folder: Path, name: str, rows: list[dict[str, object]], split: str = "train") -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))


def put_maths(folder: Path) -> None:
    put(folder, "GSM8K", [{"problem": question, "answer": answer} for question, answer in MATHS])


@pytest.mark.parametrize(
    ("index", "answer", "reward"),
    [(0, "0.75", 1.0), (0, "\\frac{6}{8}", 1.0), (0, "1", 0.0), (1, "42", 1.0), (1, "42.0", 1.0), (1, "", 0.0), (2, "2", 1.0)],
)
def test_maths_counts_what_means_the_same(folder: Path, index: int, answer: str, reward: float) -> None:
    put_maths(folder)
    with palestra.make("math:GSM8K") as env:
        observation, info = env.reset(task=Task("math:GSM8K", 0, index=index))
        assert str(observation).startswith(MATHS[index][0])
        assert info["data"] == {"set": "GSM8K", "split": "train", "index": index, "sha256": load("GSM8K").sha256}
        step = env.step(f"\\boxed{{7}} no, \\boxed{{{answer}}}")
        assert (step.reward, step.terminated, step.info["success"]) == (reward, True, bool(reward))


def test_pictures_come_before_the_text(folder: Path) -> None:
    picture = base64.b64encode(b"\x89PNG").decode()
    put(folder, "Geometry3K", [{"problem": "Find x.", "answer": "3", "images": [{"bytes": picture}]}])
    with palestra.make("math:Geometry3K") as env:
        observation, _ = env.reset(seed=0)
    assert observation[0] == Image(b"\x89PNG")


def test_a_question_takes_any_accepted_answer(folder: Path) -> None:
    put(folder, "HotpotQA", [{"problem": "Who?", "answer": ["The Beatles", "Beatles"]}])
    env = palestra.make("qa:HotpotQA")
    for answer, reward in {
        "\\boxed{beatles!}": 1,
        "<answer>The Beatles</answer>": 1,
        "\\boxed{Stones}": 0,
        "Beatles": 0,
    }.items():
        env.reset(seed=0)
        assert env.step(answer).reward == reward


def test_splits_and_indices(folder: Path) -> None:
    for split in ("math", "amc"):
        put(folder, "math-eval", [{"problem": split, "answer": "1"}], split)
    with palestra.make("eval:AMC") as env:
        assert str(env.reset(seed=0)[0]).startswith("amc")
        assert str(env.reset(task=Task("eval:AMC", 0, split="math"))[0]).startswith("math")
        with pytest.raises(UsageError, match="no split"):
            env.reset(task=Task("eval:AMC", 0, split="nonsense"))
        with pytest.raises(UsageError, match="rows 0 to 0"):
            env.reset(task=Task("eval:AMC", 0, index=1))


def test_two_outcomes_have_a_floor_of_the_commoner_one(folder: Path) -> None:
    put(folder, "RuleTaker-d0", [{"question": "?", "answer": answer} for answer in ("True", "False", "False")])
    env = palestra.make("logic:RuleTaker-d0")
    env.reset(seed=0)
    assert env.unwrapped.floor == pytest.approx(2 / 3)
