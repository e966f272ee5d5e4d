"""Groups that are played ahead: which are started, which a step takes, and that a run is the same every time."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from random import Random
from typing import Any

import hypothesis
import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.test_trainer import Crash, crash_in, fingerprint
from tests.training.test_trainer import config as small_config

from palestra.core import AsyncEnv, Step
from palestra.durable.ledger import Ledger, State
from palestra.foundation.seeding import derive
from palestra.recipes.config import TrainConfig
from palestra.registry import register
from palestra.rollouts import read_trajectories
from palestra.testing.clock import VirtualClockLoop
from palestra.training.admission import Admission
from palestra.training.assembly import assemble
from palestra.training.record import read_metrics
from palestra.training.stream import GroupStream, PlayedTask
from palestra.training.trainer import Trainer
from palestra.trajectory import Content, Task, TrajectoryGroup

pytestmark = pytest.mark.torch

SLOW = "test:LongTailed-v0"


# ---------------------------------------------------------------------------------------------------------------- admission


@st.composite
def _schedules(draw: st.DrawFn) -> tuple[int, int, int, int]:
    tasks, ahead = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    return tasks, ahead, ahead + draw(st.integers(0, 4)), draw(st.integers(1, 12))


@hypothesis.settings(max_examples=40)
@given(_schedules(), st.integers(0, 2**32))
def test_every_group_is_taken_once_and_in_time_whatever_finishes_first(schedule: tuple[int, ...], seed: int) -> None:
    random = Random(seed)
    tasks, ahead, oldest, steps = schedule
    admission, began, taken = Admission(tasks, ahead, oldest, steps), {}, []
    for step in range(steps):
        began.update(dict.fromkeys(admission.admit(step), step))
        assert len(admission.open) <= (ahead + 1) * tasks
        # The slowest come last as long as anything else can finish: then only the rule of age makes a step wait.
        while (numbers := admission.take(step)) is None:
            running = sorted(admission.running)
            assert running, "a step waits although nothing runs"
            last = running[-1] if random.random() < 0.7 else random.choice(running)
            if random.random() < 0.1:
                admission.replace(last)
                began.update(dict.fromkeys(admission.admit(step), step))
            else:
                admission.finish(last)
        assert len(numbers) == tasks
        assert all(step - began[number] <= oldest for number in numbers)
        if step <= ahead:
            assert not [number for number in admission.open if number < numbers[-1]]
        taken += numbers
    assert len(set(taken)) == len(taken) == steps * tasks
    assert not admission.open


def test_a_slow_group_is_overtaken_until_it_would_be_too_old() -> None:
    admission = Admission(tasks=1, ahead=1, oldest=3, steps=9)
    order = []
    for step in range(5):
        admission.admit(step)
        for number in admission.running - {2}:
            admission.finish(number)
        numbers = admission.take(step)
        if numbers is None:
            assert admission.running == {2}
            admission.finish(2)
            numbers = admission.take(step)
        assert numbers is not None
        order += numbers
    assert order == [0, 1, 3, 4, 2]  # group 2 started at version 1: step 4 takes it


def test_groups_that_would_be_too_old_are_not_started() -> None:
    with pytest.raises(msgspec.ValidationError, match="ahead = 3 starts groups that staleness = 2 forbids"):
        small_config(Path("nowhere"), staleness=2, ahead=3)
    assert [small_config(Path("nowhere"), staleness=k).steps_ahead for k in (0, 1, 4, 5, 8)] == [0, 1, 1, 2, 2]


def test_a_rollout_that_leaves_groups_unplayed_is_an_error_instead_of_a_wait_for_ever() -> None:
    async def nothing(numbers: range, version: int) -> AsyncGenerator[PlayedTask, None]:
        no_tasks: list[PlayedTask] = []
        for task in no_tasks:
            yield task

    async def step() -> None:
        async with GroupStream(Admission(tasks=2, ahead=0, oldest=0, steps=1), nothing) as stream:
            stream.start(0)
            await asyncio.wait_for(stream.take(0), timeout=10.0)

    with pytest.raises(RuntimeError, match=r"these groups were not played: \[0, 1\]"):
        asyncio.run(step())


# ------------------------------------------------------------------------------------------------------ under a virtual clock


class LongTailed(AsyncEnv):
    """Two turns; each takes a virtual time that follows from the task and has a long tail."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        assert task is not None
        self._random = derive(task.seed, "delay")
        self._turns = 0
        return "go", {}

    async def step(self, action: str) -> Step:
        await asyncio.sleep(float(np.exp(1.5 * self._random.standard_normal())))
        self._turns += 1
        return Step("on", float(len(action) % 3), self._turns == 2, False, {})


def settings(model: Path, **changes: Any) -> TrainConfig:
    register(SLOW, LongTailed)
    play = {"tasks": 3, "group_size": 2, "max_tokens": 4, "concurrency": 64, "deadline": 1e6}
    return small_config(
        model,
        envs={SLOW: 1.0},
        steps=9,
        play=play,
        minibatches=1,
        staleness=4,
        ahead=2,
        checkpoint_every=5,
        **changes,
    )


def run(config: TrainConfig, folder: Path, arm: Callable[[Trainer], None] = lambda _: None) -> Trainer:
    trainer = assemble(config, folder)
    publish = trainer._publish

    async def slowly(version: int) -> None:
        await asyncio.sleep(1.0)
        await publish(version)

    trainer._publish = slowly  # type: ignore[method-assign]
    arm(trainer)
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        runner.run(trainer.train())
    return trainer


def steps_of(folder: Path) -> dict[int, int]:
    """Group → the step that took it, from the ledger."""
    with Ledger(folder / "ledger") as ledger:
        assert ledger.audit().balanced
        names = ledger.rollouts(*State)
        return {int(name.partition(".")[0]): ledger.step_of(name) or 0 for name in names}


@pytest.mark.gate
@pytest.mark.slow
def test_a_run_is_equal_to_the_bit_under_a_virtual_clock_also_after_crashes(tiny_model: Path, tmp_path: Path) -> None:
    config = settings(tiny_model, settle=True)
    wanted = fingerprint(run(config, tmp_path / "first"))
    assert fingerprint(run(config, tmp_path / "second")) == wanted
    crashes = [("commit", 1), ("enter_step", 7), ("add", 9)]
    for place, (name, call) in enumerate(crashes):
        folder = tmp_path / f"crash-{place}"
        with pytest.raises(Crash):
            run(config, folder, crash_in(name, call, after=True))
        assert fingerprint(run(config, folder)) == wanted, name
    steps = steps_of(tmp_path / "first")
    assert sorted(steps.values()) == sorted([*range(1, 10)] * 3)
    overtaken = [(a, b) for a in steps for b in steps if a < b and steps[a] > steps[b]]
    assert overtaken, "no group was overtaken: the test shows nothing"
    assert max(line["staleness"] for line in read_metrics(tmp_path / "first")) <= 4


@pytest.mark.gate
@pytest.mark.slow
def test_without_settling_a_crash_loses_no_group_and_counts_none_twice(tiny_model: Path, tmp_path: Path) -> None:
    config = settings(tiny_model, samples=9)
    with pytest.raises(Crash):
        run(config, tmp_path, crash_in("_learn", 7, after=True))
    run(config, tmp_path)
    steps = steps_of(tmp_path)
    assert sorted(steps) == list(range(27))
    assert sorted(steps.values()) == sorted([*range(1, 10)] * 3)
    for one in read_trajectories(tmp_path / "trajectories.jsonl"):
        assert one.info["step"] == steps[one.group]
        assert all(one.info["step"] - 1 - span.version <= 4 for segment in one.segments for span in segment.spans)


# ---------------------------------------------------------------------------------------------------------- dynamic sampling


def unequal(group: TrajectoryGroup) -> list[float]:
    """The group reward of the test below: the members differ in one of three tasks."""
    differs = derive(group.task.seed, "kind").random() < 1 / 3
    return [float(member.member) if differs else 0.0 for member in group.members]


@pytest.mark.gate
@pytest.mark.slow
def test_constant_groups_are_replaced_before_the_step_and_stay_replaced_after_a_crash(tiny_model: Path, tmp_path: Path) -> None:
    config = settings(tiny_model, settle=True, partial={"keep_constant": False, "refill": 20})
    play = msgspec.structs.replace(config.play, group_reward=f"{__name__}:unequal")
    config = msgspec.structs.replace(config, play=play, steps=4, checkpoint_every=2)
    wanted = fingerprint(run(config, tmp_path / "whole"))
    with pytest.raises(Crash):
        run(config, tmp_path / "broken", crash_in("_learn", 3, after=True))
    assert fingerprint(run(config, tmp_path / "broken")) == wanted
    lines = read_metrics(tmp_path / "whole")
    assert [line["constant_groups"] for line in lines] == [0.0] * 4
    assert sum(line["replaced"] for line in lines) > 0
    assert all(line["members/used"] == 6 for line in lines)
    taken = [step for step in steps_of(tmp_path / "whole").values() if step]
    assert sorted(taken) == sorted([1, 2, 3, 4] * 3)


@pytest.mark.gate
@pytest.mark.slow
def test_a_step_ends_early_above_the_target_kl(tiny_model: Path, tmp_path: Path) -> None:
    changes: dict[str, Any] = {"steps": 1, "epochs": 4, "minibatches": 1, "entropy_target": {"target": 99.0, "start": 0.02}}
    run(small_config(tiny_model, **changes), tmp_path / "all")
    run(small_config(tiny_model, target_kl=1e-9, **changes), tmp_path / "few")
    (every,), (few,) = read_metrics(tmp_path / "all"), read_metrics(tmp_path / "few")
    assert every["updates"] == 4
    assert few["updates"] == 2  # the first update measures no difference yet
    assert few["entropy_coefficient"] == 0.02
