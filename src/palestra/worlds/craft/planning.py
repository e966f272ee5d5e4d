"""How to make an item with what the player has: the oracle's plan, by the tree of recipes."""

from collections import Counter
from collections.abc import Mapping

from palestra.worlds.craft.book import Book, Recipe, craft_command

__all__ = ["plan"]


def plan(book: Book, goal: str, inventory: Mapping[str, int]) -> list[str]:
    """Return the commands that make one ``goal``, given ``inventory``: materials first, then every craft in order.

    The plan takes the easiest recipe of each item, and of a kind a member that the player has enough of, or else the easiest
    one. It uses leftovers of earlier crafts before it makes more.
    """
    planner = _Planner(book, inventory)
    planner.use(planner.book.easiest(goal))
    fetched = [f"get {count} {name}" for name, count in planner.fetched.items()]
    return fetched + planner.crafts


class _Planner:
    """A plan in the making. ``free`` is what no step of it has reserved yet."""

    def __init__(self, book: Book, inventory: Mapping[str, int]) -> None:
        self.book = book
        self.free = Counter(inventory)
        self.fetched: Counter[str] = Counter()
        self.crafts: list[str] = []

    def use(self, recipe: Recipe) -> None:
        """Plan one use of ``recipe``."""
        chosen = [self._member(one.name, one.amount) for one in recipe.inputs]
        for name, one in zip(chosen, recipe.inputs, strict=True):
            self._reserve(name, one.amount)
        self.crafts.append(craft_command(recipe, chosen))
        self.free[recipe.output] += recipe.amount

    def _reserve(self, item: str, count: int) -> None:
        if item in self.book.recipes:
            while self.free[item] < count:
                self.use(self.book.easiest(item))
        elif self.free[item] < count:
            self.fetched[item] += count - self.free[item]
            self.free[item] = count
        self.free[item] -= count

    def _member(self, name: str, count: int) -> str:
        members = self.book.kinds.get(name, (name,))
        return min(members, key=lambda one: (self.free[one] < count, self.book.depth[one], one))
