"""Invented recipes: depth, solvability, names, and what a seed decides."""

import pytest

from palestra.errors import UsageError
from palestra.registry import spec
from palestra.worlds.craft.invented import DEEPEST, InventedCraft
from palestra.worlds.craft.planning import plan


@pytest.mark.parametrize("depth", range(1, DEEPEST + 1))
def test_every_world_has_its_depth_and_is_solved_within_the_turns(depth: int) -> None:
    limit = spec(f"craft:invented-depth{depth}").max_turns
    assert limit is not None
    env = InventedCraft(depth)
    for seed in range(50):
        env.reset(seed=seed)
        commands = plan(env.book, env.goal, {})
        assert env.book.depth[env.goal] == depth
        assert len(commands) <= limit
        steps = [env.step(command) for command in commands]
        assert [step.reward for step in steps] == [0.0] * (len(steps) - 1) + [1.0]
        assert steps[-1].terminated
        assert steps[-1].info["success"]


def test_distractors_are_shown_beside_the_tree() -> None:
    env = InventedCraft(2, distractors=4)
    env.reset(seed=0)
    assert len(env.shown) == len(env.book.tree(env.goal)) + 4


def test_wrong_parameters_are_named() -> None:
    with pytest.raises(UsageError, match="from 1 to 8, got 9"):
        InventedCraft(9)
    with pytest.raises(UsageError, match="names must be between 26 and 1024 for depth 1, got 5"):
        InventedCraft(1, names=5)
    with pytest.raises(UsageError, match="distractors must be >= 0"):
        InventedCraft(1, distractors=-1)
