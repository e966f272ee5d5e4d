"""Invented recipes: a new world for every seed, so that nothing about it can be known in advance.

A goal of depth ``d`` stands at the end of a chain of ``d`` recipes, each of which takes the item below and up to two other
things: a material, or a side item with a recipe of its own. The numbers are such that the whole chain needs at most five
crafts per level. Distractors are recipes that use the same things and lead elsewhere.
"""

from typing import Any

from palestra.errors import UsageError
from palestra.worlds.craft.book import Book, Ingredient, Recipe
from palestra.worlds.craft.crafting import Crafting

__all__ = ["DEEPEST", "InventedCraft", "invented_names"]

DEEPEST = 8
_STEMS = (
    "bal cor dem fen gil hul jor kel lum mav nor pel quin rud sol tam "
    "urs vel wex yor zan bri cla dro fle gri plo stu tra vro ska smi"
)
_ENDINGS = (
    "dar ek imp ona ust eth ion ax ule orn ish ab ent yx ode ann irk os um ella avi eko ard int upp omo ess ilt aff ery obe uld"
)
_MOST_NAMES = 1024
_COUNTS = (1, 1, 2, 3)


def invented_names(count: int) -> tuple[str, ...]:
    """Return the first ``count`` of 1,024 invented words. No two of the first 32 have the same beginning."""
    stems, endings = _STEMS.split(), _ENDINGS.split()
    size = len(stems)
    return tuple(stems[place % size] + endings[(place // size + 7 * (place % size)) % size] for place in range(count))


class InventedCraft(Crafting):
    """Craft an item from invented recipes.

    Args:
        depth: Number of recipes between the goal and the materials, from 1 to 8.
        distractors: Number of recipes that lead elsewhere.
        names: Number of different words from which each task draws its names. Few words suit a tiny model.
        max_turns: The turn limit.
    """

    def __init__(self, depth: int = 1, distractors: int = 10, names: int = _MOST_NAMES, max_turns: int | None = None) -> None:
        super().__init__(distractors, max_turns)
        least = 6 * depth + 2 * distractors
        if not 1 <= depth <= DEEPEST:
            raise UsageError(f"depth is a whole number from 1 to {DEEPEST}, got {depth}")
        if not least <= names <= _MOST_NAMES:
            raise UsageError(f"names must be between {least} and {_MOST_NAMES} for depth {depth}, got {names}")
        self._depth = depth
        self._names = invented_names(names)

    def begin(self) -> tuple[Book, str, dict[str, Any]]:
        self._unused: list[str] = [self._names[place] for place in self.rng.permutation(len(self._names)).tolist()]
        recipes: list[Recipe] = []
        item = self._unused.pop()
        for level in range(self._depth):
            item = self._add_level(item, level, recipes)
        others = [self._distractor(recipes) for _ in range(self._distractors)]
        return Book([*recipes, *others], {}), item, {}

    def _add_level(self, below: str, level: int, recipes: list[Recipe]) -> str:
        """Add the recipe of a new item that takes ``below``, and return the item."""
        # The item below is a material only at the first level. Otherwise one use of its recipe gives enough.
        inputs = [Ingredient(below, self._count() if level == 0 else 1)]
        for _ in range(int(self.rng.integers(3))):
            inputs.append(self._side_item(recipes) if level and self.rng.random() < 0.5 else self._material())
        order = self.rng.permutation(len(inputs)).tolist()
        item: str = self._unused.pop()
        recipes.append(Recipe(item, self._count(), tuple(inputs[place] for place in order)))
        return item

    def _side_item(self, recipes: list[Recipe]) -> Ingredient:
        item = self._unused.pop()
        recipes.append(Recipe(item, 1, (self._material(),)))
        return Ingredient(item, 2 if self.rng.random() < 0.25 else 1)

    def _distractor(self, recipes: list[Recipe]) -> Recipe:
        used = [one.name for recipe in recipes for one in recipe.inputs]
        shared = Ingredient(used[int(self.rng.integers(len(used)))], self._count())
        inputs = (shared, self._material()) if self.rng.random() < 0.5 else (shared,)
        return Recipe(self._unused.pop(), self._count(), inputs)

    def _material(self) -> Ingredient:
        return Ingredient(self._unused.pop(), self._count())

    def _count(self) -> int:
        return _COUNTS[int(self.rng.integers(len(_COUNTS)))]
