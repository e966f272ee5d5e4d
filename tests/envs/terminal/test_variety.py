"""Tasks of a level differ in what they ask for, so a player who never reads the goal scores no more than the declared floor."""

import hashlib
from collections import Counter

import pytest

pytest.importorskip("pyseccomp")

from tests.envs.terminal.test_terminal import HERE

from palestra.envs.terminal.env import Terminal
from palestra.envs.terminal.families import FAMILIES, FLOORS
from palestra.envs.terminal.grading import to_data
from palestra.envs.terminal.scene import LEVELS
from palestra.seeding import derive
from palestra.trajectory import Task

MARGIN = 0.06
"""What chance may add to a share of 200 tasks: two standard deviations for the largest floor, .2."""


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_neither_a_script_nor_a_result_is_right_in_many_tasks(family: str) -> None:
    for place, level in enumerate(LEVELS):
        scenes = [FAMILIES[family](derive(seed, "variety"), place) for seed in range(200)]
        most = Terminal(family, level).floor + MARGIN
        for what in (
            Counter(tuple(one.solution) for one in scenes),
            Counter(repr(to_data(one.checks)) for one in scenes),
            Counter(one.goal for one in scenes),
        ):
            assert what.most_common(1)[0][1] / len(scenes) <= most, (level, what.most_common(1))


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("family", HERE)
async def test_the_solution_of_another_task_seldom_helps(family: str) -> None:
    for level in LEVELS:
        env = Terminal(family, level)
        try:
            solved = [seed for seed in range(20) if await played_by_another_plan(env, f"terminal:{family}-v0-{level}", seed)]
            assert len(solved) <= 20 * (env.floor + 3 * MARGIN), (level, solved)
        finally:
            await env.close()


async def played_by_another_plan(env: Terminal, name: str, seed: int) -> float:
    """Return the reward of a task in which the commands that solve another task were run."""
    await env.reset(task=Task(name, seed))
    for command in env.scene_of(Task(name, seed + 1000)).solution:
        await env.step(f"```bash\ncd\n{command}\n```")
    return (await env.step("```bash\nsubmit\n```")).reward


def test_floors_are_declared_for_known_families() -> None:
    assert set(FLOORS) <= set(FAMILIES)
    assert Terminal("logs", "easy").floor == 0.2
    assert Terminal("tables", "hard").floor == 0.0


def test_the_family_of_the_training_study_stays_as_it_was() -> None:
    """``docs/results/terminal-training.md`` has figures of these tasks."""
    scenes = [FAMILIES["logs"](derive(seed, "task"), 0) for seed in range(5)]
    drawn = repr([(one.goal, one.files, to_data(one.checks), one.solution) for one in scenes])
    assert hashlib.sha256(drawn.encode()).hexdigest()[:16] == "032da732ecf24cf2"
