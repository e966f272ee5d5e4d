"""Training and the warm start never draw a row that an evaluation holds out."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.evaluation import evaluate
from palestra.rollouts import read_trajectories
from palestra.training import TrainConfig, train
from palestra.training.tasks import TrainingTasks, held_out_panel
from palestra.training.warm_start import _tasks, warm_start
from palestra.trajectory import Task

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

FILE = "data:units.jsonl?grader=number&instruction="


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(40)
    return tmp_path


def write(rows: int, first: int = 0) -> None:
    lines = [json.dumps({"question": f"{k} metres, in cm?", "answer": 100 * k}) for k in range(first, first + rows)]
    Path("units.jsonl").write_text("\n".join(lines))


def config(model: Path | str = "", **changes: Any) -> TrainConfig:
    data: dict[str, Any] = {
        "model": {"path": str(model)},
        "envs": {FILE: 1.0},
        "steps": 6,
        "play": {"tasks": 8, "group_size": 2, "max_tokens": 8},
        "evaluation": {"every": 3, "n": 20},
        "samples": 50,
        **changes,
    }
    return msgspec.convert(data, TrainConfig)


def held_out(settings: TrainConfig) -> set[int | None]:
    panel = held_out_panel(settings)
    assert panel is not None
    return {task.index for task in panel.tasks}


@pytest.mark.gate
@pytest.mark.slow
def test_a_run_trains_on_no_row_that_it_evaluates_on(tiny_model: Path, here: Path) -> None:
    train(config(tiny_model), here / "run", check=False)
    trained = {one.turns[0].observation for one in read_trajectories(here / "run" / "trajectories.jsonl")}
    evaluated = {
        one.turns[0].observation
        for step in ("step-00000003", "step-00000006")
        for one in read_trajectories(here / "run" / "evaluations" / step / "trajectories.jsonl")
    }
    assert len(trained) == len(evaluated) == 20
    assert not trained & evaluated


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"evaluation": {"every": 1, "n": 39}},
        {"evaluation": {"every": 1, "n": 20, "envs": ["data:units.jsonl?grader=exact"]}},
        {"envs": {FILE: 1.0, "math:Sums": 2.0}},
        {
            "variants": {"own:Units": {"env": FILE}},
            "envs": {"own:Units": 1.0},
            "evaluation": {"every": 1, "n": 20, "envs": [FILE]},
        },
    ],
    ids=["same id", "one row left", "same file, other grader", "beside another environment", "variant of it"],
)
def test_rows_that_are_held_out_are_drawn_by_nothing_else(changes: dict[str, Any]) -> None:
    from palestra.training.parts import load_parts

    settings = config(**changes)
    load_parts(settings)
    env, away = next(iter(settings.envs)), held_out(settings) - {None}
    drawing = TrainingTasks(settings)
    drawn = {drawing.task(env, place, place).index for place in range(200)}
    taught = {task.index for task in _tasks(settings, 200, seed=1) if task.env == env}
    assert len(away) >= 20
    assert drawn == taught == set(range(40)) - away


def test_each_row_is_drawn_once_before_any_is_repeated() -> None:
    drawing = TrainingTasks(config())
    rows = [drawing.task(FILE, 0, place).index for place in range(40)]
    assert set(rows[:20]) == set(rows[20:])
    assert rows[:20] != rows[20:]


def test_a_second_file_is_held_out_and_the_first_is_trained_on_whole() -> None:
    Path("held-out.jsonl").write_text('{"question": "7 km, in m?", "answer": 7000}')
    drawing = TrainingTasks(config(evaluation={"every": 1, "envs": ["data:held-out.jsonl?grader=number"]}))
    assert drawing.rows[FILE] == list(range(40))
    assert TrainingTasks(config(evaluation=None, envs={"math:Sums": 1.0})).task("math:Sums", 5, 9) == Task("math:Sums", 5)


def test_an_evaluation_that_leaves_no_row_to_train_on_is_refused_with_what_to_type(here: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"has 40 rows, and evaluation\.n = 100 holds.*set evaluation\.n below 40.*evaluation\.envs =",
    ):
        train(config("nowhere", evaluation={"every": 1}), here / "run")


def test_a_note_says_that_few_rows_are_left_to_train_on(tiny_model: Path, here: Path) -> None:
    said: list[str] = []
    settings = config(
        tiny_model, steps=1, evaluation={"every": 1, "n": 39}, play={"tasks": 1, "group_size": 2, "max_tokens": 16}
    )
    train(settings, here / "run", say=said.append)
    assert any("39 of its 40 rows are held out, so training draws only 1" in note for note in said)


# -------------------------------------------------------------------------------------------------------------- the teacher


class Shy(Env):
    """Has an oracle, and plays no random moves; every third task breaks."""

    def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "Say 1.", {}

    def step(self, action: str) -> Step:
        return Step("", 1.0, True, False, {})

    def oracle(self) -> str:
        if self.rng.integers(3) == 0:
            raise ValueError("the answer is smudged")
        return "1"


def test_a_teacher_that_finishes_no_episode_stops_the_run_with_what_to_type(tiny_model: Path, here: Path) -> None:
    envs = {FILE: 1.0, f"{__name__}:Shy": 1.0}
    settings = config(tiny_model, envs=envs, warm_start={"teacher": "random", "episodes": 6}, evaluation=None)
    with pytest.raises(UsageError, match=r'"random" finished no episode of .*:Shy: Shy has no sample_random_action.*"oracle"'):
        train(settings, here / "run", check=False)
    assert not (here / "run" / "warm-start").exists()


def test_episodes_that_a_teacher_did_not_finish_are_counted_in_a_note(tiny_model: Path, here: Path) -> None:
    lessons = {"episodes": 30, "epochs": 1, "minibatches": 1}
    settings = config(tiny_model, envs={f"{__name__}:Shy": 1.0}, warm_start=lessons, evaluation=None)
    assert settings.warm_start is not None
    said: list[str] = []
    warm_start(settings, settings.warm_start, str(tiny_model), here / "warm", say=said.append)
    (note,) = said
    assert "of 30 episodes of" in note
    assert "the answer is smudged" in note


# ------------------------------------------------------------------------------------------------------ a file that changes


def test_a_question_file_that_changes_ends_the_run_with_its_name(tiny_model: Path, here: Path) -> None:
    settings = config(tiny_model, steps=1, evaluation=None)
    train(settings, here / "run", check=False)
    write(40, first=1)
    for again in (1, 2):
        with pytest.raises(UsageError, match=r"units\.jsonl has changed since the run began"):
            train(msgspec.structs.replace(settings, steps=again), here / "run", check=False)
    evaluate(FILE, "oracle", n=1, out=here / "eval")
    write(40, first=2)
    with pytest.raises(UsageError, match=r"units\.jsonl has changed since the run began"):
        evaluate(FILE, "oracle", n=1, out=here / "eval")
