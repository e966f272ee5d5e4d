"""Runs of a study, with a model that trains in seconds: made once, resumed, repeated to the bit, by several processes."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from palestra.durable import lock_folder
from palestra.studies import Cell, load_study, read_results
from palestra.studies.page import study_section
from palestra.studies.results import numbers, read_played, result_path
from palestra.studies.running import _play, run_cell, run_study
from palestra.training.learner.model import ActorCritic
from palestra.trajectory import Task

pytestmark = pytest.mark.slow

STUDY = """
question = "Does anything run?"
seeds = [0, 1]
held_out = 6
equal_seconds = "evaluation/score"
compare = [{ first = "ReBN", second = "GRPO" }]
players = ["random", "oracle"]
overrides = [
  "steps=2", "checkpoint_every=1", "minibatches=1", "epochs=1", "play.tasks=2", "play.group_size=2",
  "warm_start.episodes=16", "warm_start.epochs=1", "warm_start.minibatches=1",
  "evaluation={every=1,n=2}",
]

[environments.guess]
recipe = "cpu/guess"

[budgets]
turns = [1, 2]
samples = 3

[arms]
ReBN = ["advantage.method=rebn"]
GRPO = ["advantage.method=grpo"]
"""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study whose runs have been made by two processes."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    command = [sys.executable, "-m", "palestra.cli", "study", "run", str(folder), "--jobs", "2", "--work", str(folder / "work")]
    subprocess.run(command, check=True, timeout=600)
    return folder


def test_two_processes_make_every_run_once(study: Path) -> None:
    known = load_study(study)
    assert [result.cell for result in read_results(study, known)] == [
        Cell("guess", arm, seed) for arm in known.arms for seed in (0, 1)
    ]
    lines: list[str] = []
    assert run_study(study, known, list(known.cells()), study / "work", lines.append) == 0
    assert lines == []


def test_a_result_holds_every_held_out_task_every_step_and_the_scores_with_other_budgets(study: Path) -> None:
    (first, *_) = read_results(study, load_study(study))
    assert {len(values) for values in (*first.before.values(), *first.after.values())} == {6}
    assert {len(values) for values in first.curves.values()} == {2}
    assert first.model == "tiny:game:GuessTheNumber-v0-brief10"
    assert first.made.cpu_seconds > 0
    assert set(first.budgets) == {"before", "after"}
    for scores in first.budgets.values():
        assert {limit: len(values) for limit, values in scores.turns.items()} == {"1": 6, "2": 6}
        assert [len(values) for values in scores.samples] == [3] * 6


def test_the_seconds_of_a_run_leave_its_evaluations_out_and_their_curve_is_kept(study: Path) -> None:
    (first, *_) = read_results(study, load_study(study))
    lines = (study / "work" / first.cell.name / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    steps = [json.loads(line) for line in lines]
    for step, seconds in zip(steps, first.made.step_seconds, strict=True):
        spent = sum(value for key, value in step.items() if key.startswith("seconds/"))
        assert seconds == pytest.approx(spent - step["seconds/evaluate"], abs=0.006)
        assert step["seconds/evaluate"] > 0.006
    assert first.curves["evaluation/score"] == [round(step["evaluation/score"], 4) for step in steps]


async def test_a_limit_of_turns_holds_and_samples_of_a_task_stand_together() -> None:
    tasks = [Task("game:GuessTheNumber-v0-easy", seed) for seed in range(5)]
    limited = await _play(tasks, "random", 3, max_turns=1)
    assert limited["turns"] == [1.0] * 5
    once, thrice = [await _play(tasks, "oracle", 3, group_size=size) for size in (1, 3)]
    assert thrice["turns"] == [turns for turns in once["turns"] for _ in range(3)]
    assert len(set(once["turns"])) > 1


def test_arms_of_a_seed_start_equal_and_seeds_differ(study: Path) -> None:
    results = {run.cell: run for run in read_results(study, load_study(study))}
    assert results[Cell("guess", "ReBN", 0)].before == results[Cell("guess", "GRPO", 0)].before
    assert results[Cell("guess", "ReBN", 0)].curves != results[Cell("guess", "ReBN", 1)].curves


def test_the_players_show_floor_and_ceiling(study: Path) -> None:
    played = read_played(study, "guess", ["random", "oracle"])
    assert sum(played["random"]["success"]) < sum(played["oracle"]["success"]) == 6.0


@pytest.mark.gate
def test_a_repeated_run_has_the_same_numbers(study: Path, tmp_path: Path) -> None:
    known = load_study(study)
    kept = read_results(study, known)[0]
    with asyncio.Runner() as loop:
        assert numbers(run_cell(study, known, kept.cell, tmp_path, print, loop)) == numbers(kept)


def test_the_memory_of_a_finished_run_is_free_for_the_next(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    known = load_study(tmp_path)
    gc.collect()
    gc.disable()  # what Python would do on its own comes too late for large models
    try:
        run_study(tmp_path, known, [Cell("guess", "ReBN", 0)], tmp_path / "work", lambda _: None)
        assert not [instance for instance in gc.get_objects() if type(instance) is ActorCritic]
    finally:
        gc.enable()


def test_a_run_that_another_process_makes_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY.replace("players", "# players"), encoding="utf-8")
    known = load_study(tmp_path)
    cell = next(known.cells())
    with lock_folder(tmp_path / "work" / "locks" / cell.name):
        assert run_study(tmp_path, known, [cell], tmp_path / "work", print) == 0
    assert not result_path(tmp_path, cell).exists()


@pytest.mark.skipif(sys.platform != "linux", reason="processes end with their parent on Linux only")
def test_the_other_processes_end_with_the_first(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    arguments = ["study", "run", str(tmp_path), "--jobs", "2", "--work", str(tmp_path / "work")]
    process = subprocess.Popen([sys.executable, "-m", "palestra.cli", *arguments])
    try:
        _until(lambda: bool(_helpers(tmp_path)))
        (helper,) = _helpers(tmp_path)
        process.terminate()
        process.wait(60)
        _until(lambda: helper not in _helpers(tmp_path))
        made = len(read_results(tmp_path, load_study(tmp_path)))
        assert made < 4, "the helper ended because it had made every run"
    finally:
        process.kill()
        process.wait()


def _helpers(study: Path) -> list[int]:
    """The processes that work on ``study`` without ``--jobs``."""
    helpers = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().decode().split("\0")
            if str(study) in words and "--jobs" not in words and "-c" not in words:
                helpers.append(int(process.name))
    return helpers


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def killed(study: Path, tmp_path: Path) -> Path:
    """A study of one run whose process was killed after its first checkpoint."""
    (tmp_path / "study.toml").write_text(STUDY.replace("players", "# players"), encoding="utf-8")
    work = tmp_path / "work"
    arguments = ["study", "run", str(tmp_path), "--only", "guess/ReBN-0", "--work", str(work)]
    process = subprocess.Popen([sys.executable, "-m", "palestra.cli", *arguments])
    try:
        until = time.monotonic() + 300
        while not list((work / "guess" / "ReBN-0").glob("checkpoints/*")) and process.poll() is None:
            assert time.monotonic() < until
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.wait()
    return tmp_path


def test_a_run_that_was_killed_resumes_to_the_same_numbers(study: Path, killed: Path) -> None:
    known = load_study(killed)
    run_study(killed, known, [Cell("guess", "ReBN", 0)], killed / "work", print)
    (resumed,) = read_results(killed, known)
    kept = next(result for result in read_results(study, load_study(study)) if result.cell == resumed.cell)
    ours, theirs = numbers(resumed), numbers(kept)
    assert {name for name in ours if ours[name] != theirs[name]} <= {"command"}
    assert resumed.made.resumed
    assert not kept.made.resumed
    assert "resumed, and their CPU seconds begin with the last resume: guess/ReBN-0." in study_section(killed, killed)
    assert "resumed" not in study_section(study, study)
