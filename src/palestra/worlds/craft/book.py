"""Recipes: what each one takes and gives, how deep an item is, and which recipes belong to a goal.

A name is an item, or a kind: a word such as ``planks`` for which any member serves. An item without a recipe is a material,
which a player may fetch. The depth of a material is 0; the depth of another item is one more than that of the deepest
ingredient of its easiest recipe.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

__all__ = ["Book", "Ingredient", "Recipe", "craft_command"]


class Ingredient(NamedTuple):
    """A number of items of one name. The name may be a kind."""

    name: str
    amount: int


class Recipe(NamedTuple):
    """One way to make an item."""

    output: str
    amount: int
    """Number of items that one use of the recipe gives."""
    inputs: tuple[Ingredient, ...]

    @property
    def text(self) -> str:
        """The recipe as a player reads it, and as a command."""
        return craft_command(self, [one.name for one in self.inputs])


def craft_command(recipe: Recipe, chosen: Iterable[str]) -> str:
    """Return the command that uses ``recipe`` with the items ``chosen`` for its inputs."""
    parts = (f"{one.amount} {name}" for one, name in zip(recipe.inputs, chosen, strict=True))
    return f"craft {recipe.amount} {recipe.output} using {', '.join(parts)}"


class Book:
    """All recipes of a world. They must not form a cycle.

    Args:
        recipes: In the order in which they are tried.
        kinds: Kind → its members, sorted.
        materials: Items that can be fetched although no recipe mentions them.
    """

    def __init__(self, recipes: Iterable[Recipe], kinds: Mapping[str, tuple[str, ...]], materials: Iterable[str] = ()) -> None:
        self.all = tuple(recipes)
        self.kinds = dict(kinds)
        self.recipes: dict[str, tuple[Recipe, ...]] = {}
        for recipe in self.all:
            self.recipes[recipe.output] = (*self.recipes.get(recipe.output, ()), recipe)
        named = {one.name for recipe in self.all for one in recipe.inputs} | set(materials)
        self.materials = frozenset(named - self.recipes.keys() - self.kinds.keys())

    @cached_property
    def depth(self) -> dict[str, int]:
        """Name → depth, for every name."""
        found: dict[str, int] = {}
        for name in (*sorted(self.materials), *self.recipes, *self.kinds):
            self._find_depth(name, found)
        return found

    def _find_depth(self, name: str, found: dict[str, int]) -> int:
        if name not in found:
            if name in self.kinds:
                found[name] = min(self._find_depth(member, found) for member in self.kinds[name])
            else:
                recipes = self.recipes.get(name, ())
                deepest = [1 + max(self._find_depth(one.name, found) for one in recipe.inputs) for recipe in recipes]
                found[name] = min(deepest, default=0)
        return found[name]

    def easiest(self, item: str) -> Recipe:
        """Return the recipe of ``item`` with the shallowest ingredients; among equals, the first."""
        return min(self.recipes[item], key=lambda recipe: max(self.depth[one.name] for one in recipe.inputs))

    def tree(self, goal: str) -> tuple[Recipe, ...]:
        """Return every recipe that may serve on the way to ``goal``, without repetition."""
        found: dict[Recipe, None] = {}
        names, seen = [goal], {goal}
        for name in names:
            recipes = self.recipes.get(name, ())
            found.update(dict.fromkeys(recipes))
            more = [*self.kinds.get(name, ()), *(one.name for recipe in recipes for one in recipe.inputs)]
            names += [one for one in dict.fromkeys(more) if one not in seen]
            seen.update(more)
        return tuple(found)

    def distractors(self, tree: Iterable[Recipe]) -> list[Recipe]:
        """Return the recipes outside ``tree`` that use one of its ingredients, in the order of the book."""
        inside = set(tree)
        names = {one.name for recipe in inside for one in recipe.inputs}
        found = {recipe for name in names for recipe in self._uses.get(name, ()) if recipe not in inside}
        return sorted(found, key=self._place.__getitem__)

    @cached_property
    def _uses(self) -> dict[str, list[Recipe]]:
        found: dict[str, list[Recipe]] = {}
        for recipe in self.all:
            for one in recipe.inputs:
                found.setdefault(one.name, []).append(recipe)
        return found

    @cached_property
    def _place(self) -> dict[Recipe, int]:
        return {recipe: place for place, recipe in enumerate(self.all)}
