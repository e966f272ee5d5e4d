"""Make the runs of a study.

Every run is evaluated before its first step and after its last, on the same held-out tasks, sampled as in training. The arms of
one environment and seed start from one warm start and play the same training tasks, so they are compared in pairs.

A run that has its result is not made again. A run that was killed resumes from its checkpoint. Several processes may work on
one study: each run is claimed by one of them.
"""

import asyncio
import fcntl
import gc
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import torch

from palestra.durable import Inside, lock_folder, write_whole
from palestra.errors import EnvError, UsageError
from palestra.evaluation.versions import package_versions
from palestra.foundation.seeding import derive_seed
from palestra.inference.models import find_model
from palestra.recipes.config import TrainConfig
from palestra.recipes.reading import resolve
from palestra.registry import make
from palestra.rollouts import rollout
from palestra.studies.packing import read_packed
from palestra.studies.results import (
    BudgetScores,
    Made,
    Outcomes,
    RunResult,
    curves_of,
    name_of,
    played_path,
    result_path,
    write_result,
)
from palestra.studies.study import Budgets, Cell, Study
from palestra.training.assembly import assemble
from palestra.training.parts import register_variants
from palestra.training.run import claimed
from palestra.training.trainer import Trainer
from palestra.training.warm_start import warm_start
from palestra.trajectory import Task, Trajectory, text_of

__all__ = ["Say", "play_reference", "run_cell", "run_study"]

Say = Callable[[str], None]

CURVES = ("success", "turns", "reward", "format_errors", "entropy", "clipped", "kl_old", "gradient_norm", "tokens")
"""Metrics of each step that a result keeps, beside those that the study's figure shows."""

_BEFORE = "before.json"
"""In the folder of a run, its evaluation before the first step."""


def run_study(folder: Path, study: Study, cells: Sequence[Cell], work: Path, say: Say) -> int:
    """Make those of ``cells`` that have no result and that no other process is making. Returns how many it made.

    Args:
        folder: The folder of the study, which receives the results.
        study: The study.
        cells: The runs to make.
        work: The folder of the training runs: one folder per run, with checkpoints, which ``palestra view`` opens.
        say: Called with a line about each run.
    """
    # One event loop for all runs: an agent's framework may keep connections, and closes them after its episode.
    with asyncio.Runner() as loop:
        return _run_all(folder, study, cells, work, say, loop)


def _run_all(folder: Path, study: Study, cells: Sequence[Cell], work: Path, say: Say, loop: asyncio.Runner) -> int:
    packed = read_packed(folder)

    def has_result(path: Inside) -> bool:
        return path.exists() or name_of(path) in packed

    made = 0
    for environment in dict.fromkeys(cell.environment for cell in cells):
        for player in study.players:
            path = played_path(folder, environment, player)
            if not has_result(path):
                write_result(path, play_reference(folder, study, environment, player, loop))
    for cell in cells:
        path = result_path(folder, cell)
        if has_result(path):
            continue
        with _unless_taken(work / "locks" / cell.name) as ours:
            if ours and not path.exists():
                say(f"{cell}: running")
                result = run_cell(folder, study, cell, work, say, loop)
                write_result(path, result)
                say(f"{cell}: {_in_brief(result, study.measure)}")
                made += 1
                # Network and optimizer refer to each other. Without this call they would stay in memory beside those of the
                # next run until Python looks for such circles, which with SmolLM2 was too late for 24 GB.
                gc.collect()
    return made


def run_cell(folder: Path, study: Study, cell: Cell, work: Path, say: Say, loop: asyncio.Runner) -> RunResult:
    """Train one arm with one seed, with the evaluation before and after."""
    torch.set_num_threads(1)  # a tiny model is slower with two, and two runs share two cores
    config = _config(folder, study, cell)
    tasks = _held_out(config, study.held_out_of(cell.environment))
    began, spent = time.perf_counter(), time.process_time()
    resumed = (work / cell.name / _BEFORE).exists()
    config = _from_shared_warm_start(config, work / "warm-starts" / f"{cell.environment}-{cell.seed}")
    warm = time.perf_counter() - began
    with claimed(config, work / cell.name):
        trainer = assemble(config, work / cell.name, say=say)
        try:
            before, after = loop.run(_measured(trainer, tasks, study))
        finally:
            trainer.ledger.close()
        steps = [msgspec.json.decode(line) for line in (Inside(trainer.folder) / "metrics.jsonl").read_bytes().splitlines()]
    took = [_training_seconds(step, config) for step in steps]
    return RunResult(
        environment=cell.environment,
        arm=cell.arm,
        seed=cell.seed,
        command=f'palestra study repeat {_place(folder)} "{cell.name}"',
        model=_config(folder, study, cell).model.path,
        overrides=study.overrides_of(cell),
        before=before.outcomes,
        after=after.outcomes,
        curves=curves_of(steps, dict.fromkeys((*CURVES, *study.curves, *filter(None, [study.equal_seconds])))),
        budgets={"before": before.budgets, "after": after.budgets} if before.budgets and after.budgets else {},
        asked=_asked(tasks) if study.environments[cell.environment].by_observation else [],
        made=Made(
            date=datetime.now(UTC).strftime("%Y-%m-%d"),
            machine=_machine(),
            commit=_commit(),
            versions={**package_versions(), "torch": str(torch.__version__)},
            seconds=round(sum(took), 1),
            cpu_seconds=round(time.process_time() - spent, 1),
            warm_start_seconds=round(warm, 1),
            step_seconds=[round(seconds, 2) for seconds in took],
            resumed=resumed,
        ),
    )


def _training_seconds(step: dict[str, float], config: TrainConfig) -> float:
    """Seconds of a step without its evaluation, whose length depends on how the study measures.

    The episodes of an asynchronous run continue during an evaluation, so there its seconds count.
    """
    parts = {key: value for key, value in step.items() if key.startswith("seconds/")}
    return sum(value for key, value in parts.items() if config.staleness or key != "seconds/evaluate")


def play_reference(folder: Path, study: Study, environment: str, player: str, loop: asyncio.Runner) -> Outcomes:
    """Play the held-out tasks of ``environment`` with ``random`` or ``oracle``."""
    cell = Cell(environment, next(iter(study.arms)), study.seeds[0])
    config = _config(folder, study, cell)
    tasks = _held_out(config, study.held_out_of(environment))
    return loop.run(_play(tasks, player, config.play.concurrency))


def _config(folder: Path, study: Study, cell: Cell) -> TrainConfig:
    local = folder / study.environments[cell.environment].recipe
    path = local if local.exists() else Path(study.environments[cell.environment].recipe)
    config = resolve(path, study.overrides_of(cell))
    register_variants(config.variants)
    return config


def _from_shared_warm_start(config: TrainConfig, folder: Path) -> TrainConfig:
    if config.warm_start is None:
        return config
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:  # another process may need the same warm start: it waits
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = warm_start(config, config.warm_start, str(find_model(config.model.path)), folder)
    model = msgspec.structs.replace(config.model, path=str(path))
    return msgspec.structs.replace(config, model=model, warm_start=None)


class _Evaluated(msgspec.Struct):
    """An evaluation of one model."""

    outcomes: Outcomes
    budgets: BudgetScores | None = None


async def _measured(trainer: Trainer, tasks: Sequence[Task], study: Study) -> tuple[_Evaluated, _Evaluated]:
    """Evaluation, training, evaluation. A run that resumes keeps the first evaluation from its first start."""
    path = Inside(trainer.folder) / _BEFORE
    try:
        if not path.exists():
            write_whole(path, msgspec.json.encode(await _evaluated(trainer, tasks, study)))
        await trainer.train()
        return msgspec.json.decode(path.read_bytes(), type=_Evaluated), await _evaluated(trainer, tasks, study)
    finally:
        await trainer.close()


async def _evaluated(trainer: Trainer, tasks: Sequence[Task], study: Study) -> _Evaluated:
    policy, concurrency = trainer.policy, trainer.config.play.concurrency
    outcomes = await _play(tasks, policy, concurrency)
    if study.budgets is None:
        return _Evaluated(outcomes)
    return _Evaluated(outcomes, await _play_budgets(tasks, policy, concurrency, study.budgets, study.measure))


async def _play_budgets(tasks: Sequence[Task], player: Any, concurrency: int, budgets: Budgets, measure: str) -> BudgetScores:
    limited = {str(most): (await _play(tasks, player, concurrency, max_turns=most))[measure] for most in budgets.turns}
    scores = (await _play(tasks, player, concurrency, group_size=budgets.samples))[measure]
    each = [scores[first : first + budgets.samples] for first in range(0, len(scores), budgets.samples)]
    return BudgetScores(limited, each)


async def _play(tasks: Sequence[Task], player: Any, concurrency: int, **options: Any) -> Outcomes:
    played = [trajectory async for trajectory in rollout(tasks, player, seed=1, concurrency=concurrency, **options)]
    return _outcomes(sorted(played, key=lambda trajectory: (trajectory.group, trajectory.member)))


def _outcomes(played: Sequence[Trajectory]) -> Outcomes:
    failed = next((trajectory for trajectory in played if trajectory.stop.failed), None)
    if failed is not None:
        raise EnvError(f"a held-out episode of {failed.task.env} failed, so the run has no score: {failed.failures[0]}")
    return {
        "success": [float(bool(trajectory.success)) for trajectory in played],
        "turns": [float(len(trajectory.turns)) for trajectory in played],
        "reward": [round(trajectory.reward or 0.0, 4) for trajectory in played],
    }


def _held_out(config: TrainConfig, count: int) -> list[Task]:
    """Tasks that no step of any run plays: another split, with seeds of their own."""
    envs = list(config.envs)
    return [Task(envs[number % len(envs)], derive_seed(0, "held out", number), split="test") for number in range(count)]


def _asked(tasks: Sequence[Task]) -> list[str]:
    with make(tasks[0].env) as env:
        return [text_of(env.reset(task=task)[0]) for task in tasks]


@contextmanager
def _unless_taken(folder: Path) -> Iterator[bool]:
    """Hold the lock of ``folder``; false if another process holds it."""
    lock = lock_folder(folder)
    try:
        lock.__enter__()
    except UsageError:
        yield False
        return
    try:
        yield True
    finally:
        lock.__exit__(None, None, None)


def _in_brief(result: RunResult, measure: str) -> str:
    before, after = (sum(values[measure]) / len(values[measure]) for values in (result.before, result.after))
    return f"{measure} {before:.3f} → {after:.3f} in {result.made.seconds:.0f} s"


def _machine() -> str:
    """Kind of processor, number of cores and system, without the machine's name."""
    return f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}"


def _commit() -> str:
    """The commit of the source tree that this module is in; empty if it is installed."""
    return _git(Path(__file__).parent, "--short=10", "HEAD")


def _place(folder: Path) -> str:
    """The study's folder, from the top of its repository; outside of one, its name."""
    return _git(folder, "--show-prefix").rstrip("/") or folder.name


def _git(folder: Path, *question: str) -> str:
    try:
        command = ["git", "-C", str(folder), "rev-parse", *question]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
