"""Tasks by difficulty: what is drawn follows the solve rates, repeats after a resume, and stays as it was without a rule."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palestra.errors import UsageError
from palestra.recipes.config import TrainConfig
from palestra.training.algorithms.horizon import StepOutcome
from palestra.training.assembly import assemble
from palestra.training.difficulty import RowOutcome, SolveRate, difficulty_weights, running_rates
from palestra.training.summary import solved
from palestra.training.tasks import KnownOutcomes, TrainingTasks
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]

FILE = "data:units.jsonl?grader=number&instruction="
LEVELS = [f"game:GuessTheNumber-v0-{level}" for level in ("easy", "hard")]
NOTHING = KnownOutcomes({}, {})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"question": f"{k} metres, in cm?", "answer": 100 * k}) for k in range(30)]
    Path("units.jsonl").write_text("\n".join(lines))
    return tmp_path


def config(rule: Any, envs: list[str], model: Path | str = "m", **changes: Any) -> TrainConfig:
    play = {"tasks": 8, "group_size": 2, "max_tokens": 6, **({"difficulty": rule} if rule else {})}
    data = {"model": {"path": str(model)}, "envs": dict.fromkeys(envs, 1.0), "steps": 4, "play": play, **changes}
    return msgspec.convert(data, TrainConfig)


def test_each_new_outcome_counts_half() -> None:
    rates = running_rates([("a", 4, 4), ("b", 2, 0), ("a", 4, 0), ("a", 0, 0), ("a", 2, 1)])
    assert rates == {"a": SolveRate(10, 0.5), "b": SolveRate(2, 0.0)}
    assert running_rates([("a", 4, 4), ("a", 4, 0), ("a", 4, 0)])["a"].rate == 0.25


def test_pools_prefer_what_is_sometimes_solved() -> None:
    rates = [SolveRate(0, 0.0), SolveRate(8, 0.0), SolveRate(8, 0.5), SolveRate(8, 1.0), SolveRate(8, 0.9)]
    assert difficulty_weights("pools", rates).tolist() == [1.0, 0.2, 1.0, 0.2, 0.2]
    own = {"use": "pools", "easy": 0.95, "easy_weight": 0.0}
    assert difficulty_weights(own, rates).tolist() == [1.0, 0.2, 1.0, 0.0, 1.0]
    assert difficulty_weights(None, rates).tolist() == [1.0] * 5


def test_rows_are_drawn_by_their_rates_and_none_twice_in_a_step() -> None:
    drawing = TrainingTasks(config("pools", [FILE]))
    known = KnownOutcomes({}, {FILE: [RowOutcome(0, row, 4, 4 if row < 15 else 2) for row in range(30)]})
    steps = [[drawing.draw(8 * step + place, known) for place in range(8)] for step in range(200)]
    assert all(len({task.index for task in tasks}) == 8 for tasks in steps)
    easy = sum(task.index is not None and task.index < 15 for tasks in steps for task in tasks) / 1600
    assert 0.15 < easy < 0.30  # a fifth of the weight each, and without repeats a little more
    assert steps == [[drawing.draw(8 * step + place, known) for place in range(8)] for step in range(200)]


@pytest.mark.parametrize("envs", [[FILE], LEVELS, [FILE, *LEVELS]])
def test_without_a_rule_outcomes_change_nothing(envs: list[str]) -> None:
    drawing = TrainingTasks(config(None, envs))
    known = KnownOutcomes({env: [StepOutcome(0, 64, 64)] for env in envs[:1]}, {FILE: [RowOutcome(0, 3, 4, 4)]})
    assert all(drawing.draw(number, known) == drawing.draw(number, NOTHING) for number in range(64))


def too_few(rates: list[SolveRate]) -> list[float]:
    return [1.0]


def nothing(rates: list[SolveRate]) -> list[float]:
    return [0.0 for _ in rates]


def test_a_rule_that_returns_no_weights_is_refused() -> None:
    drawing = TrainingTasks(config(f"{__name__}:too_few", [FILE]))
    with pytest.raises(UsageError, match=r"play\.difficulty must return one weight per task \(30\)"):
        drawing.draw(0, NOTHING)


def test_tasks_are_drawn_evenly_if_all_have_the_weight_0() -> None:
    rule = f"{__name__}:nothing"
    rows = {TrainingTasks(config(rule, [FILE])).draw(number, NOTHING).index for number in range(400)}
    assert rows == set(range(30))
    levels = TrainingTasks(config(rule, LEVELS))
    counts = Counter(levels.draw(number, NOTHING).env for number in range(2000))
    assert counts[LEVELS[0]] / 2000 == pytest.approx(0.5, abs=0.04)


def test_a_rule_without_a_choice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"play\.difficulty has nothing to choose from: game:GuessTheNumber-v0-easy"):
        TrainingTasks(config("pools", LEVELS[:1]))
    with pytest.raises(msgspec.ValidationError, match=r"does not see the tasks that partial\.refill replaces"):
        config("pools", LEVELS, partial={"keep_constant": False, "refill": 2})


def test_a_row_whose_episodes_are_all_cut_counts_as_failed_if_another_row_was_judged() -> None:
    def played(row: int, stop: StopReason, info: dict[str, Any]) -> list[Trajectory]:
        return [Trajectory(Task(FILE, index=row), stop, turns=(Turn("o", Completion("a"), 0.0, info),)) for _ in range(3)]

    cut, judged = played(0, StopReason.TURN_LIMIT, {}), played(1, StopReason.TERMINATED, {"success": True})
    assert solved([cut, judged]) == [[False] * 3, [True] * 3]
    assert solved([cut]) == [[]]


@pytest.mark.gate
@pytest.mark.slow
async def test_a_resumed_run_draws_the_same_tasks(tiny_model: Path, here: Path) -> None:
    def settings(steps: int) -> TrainConfig:
        return config("pools", [FILE, LEVELS[0]], tiny_model, steps=steps, checkpoint_every=1)

    uninterrupted = assemble(settings(4), here / "whole")
    await uninterrupted.train()
    for steps in (2, 4):
        resumed = assemble(settings(steps), here / "parts")
        await resumed.train()
    assert resumed.accounts.row_outcomes == uninterrupted.accounts.row_outcomes
    assert sum(len(rows) for rows in uninterrupted.accounts.row_outcomes.values()) > 8
    assert resumed.accounts.outcomes == uninterrupted.accounts.outcomes
