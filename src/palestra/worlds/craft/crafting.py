"""Craft an item from recipes, with the commands ``get``, ``craft`` and ``inventory``.

The first observation shows every recipe that may serve on the way to the goal, and some that do not. A player may get any
number of a material, that is, of an item without a recipe. Everything else must be crafted: a ``craft`` command names the item
and exactly what one of its recipes takes, and uses the recipe once. The episode ends with reward 1 when the player crafts the
goal. All other commands are worth 0, and a text that is not a command costs a turn.
"""

import copy
from abc import abstractmethod
from html import escape
from typing import Any, ClassVar

from palestra.authoring.action_line import action_line
from palestra.core import Env, Step
from palestra.errors import UsageError
from palestra.trajectory import Task
from palestra.worlds.craft.book import Book, Recipe
from palestra.worlds.craft.commands import CraftItem, FetchItem, read_command
from palestra.worlds.craft.planning import plan

__all__ = ["Crafting"]

_COMMANDS = "get NUMBER ITEM\ncraft NUMBER ITEM using NUMBER ITEM, NUMBER ITEM\ninventory"
_NO_COMMAND = f"That is not a command. Write one of these on the last line:\n{_COMMANDS}"
_RULES = (
    "Craft the goal.\n\nYou can get any number of an item that no recipe makes. Craft everything else: name the item and "
    "exactly what its recipe takes. One command uses a recipe once.\n\nWrite one command per turn, on the last line of your "
    f"reply:\n{_COMMANDS}"
)


class Crafting(Env):
    """What the crafting worlds share; a world says which recipes and which goal a task has."""

    reward_range = (0.0, 1.0)
    score_range = (0.0, 1.0)
    rules: ClassVar[str] = _RULES
    no_command: ClassVar[str] = _NO_COMMAND
    tells_kinds: ClassVar[bool] = True
    """Whether the first observation lists the members of each kind."""

    def __init__(self, distractors: int = 10, max_turns: int | None = None) -> None:
        if distractors < 0 or (max_turns is not None and max_turns < 1):
            raise UsageError(f"distractors must be >= 0 and max_turns >= 1, got {distractors} and {max_turns}")
        self._distractors = distractors
        self.max_turns = max_turns

    @abstractmethod
    def begin(self) -> tuple[Book, str, dict[str, Any]]:
        """Return the recipes, the goal and the ``info`` of this task."""

    def command_line(self, action: str) -> str:
        """Return the part of an action that is the command."""
        return action_line(action)

    def as_action(self, command: str) -> str:
        """Return ``command`` in the form in which a player writes it."""
        return command

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.book, self.goal, info = self.begin()
        self.inventory: dict[str, int] = {}
        self.shown = self._shuffled()
        if self.max_turns is not None:
            info["max_turns"] = self.max_turns
        return self._first_observation(), info

    def _shuffled(self) -> tuple[Recipe, ...]:
        """Draw the distractors and the order of the recipes."""
        tree = self.book.tree(self.goal)
        others = self.book.distractors(tree)
        drawn = self.rng.permutation(len(others))[: self._distractors].tolist()
        shown = [*tree, *(others[place] for place in drawn)]
        return tuple(shown[place] for place in self.rng.permutation(len(shown)).tolist())

    def _first_observation(self) -> str:
        lines = [recipe.text for recipe in self.shown]
        parts = [self.rules, "Recipes:\n" + "\n".join(lines)]
        if self.tells_kinds and (kinds := self._kinds_shown()):
            parts.append("\n".join(f"For {kind}, use one of: {', '.join(self.book.kinds[kind])}" for kind in kinds))
        if self.max_turns is not None:
            parts.append(f"You have {self.max_turns} turns.")
        return "\n\n".join([*parts, f"Goal: 1 {self.goal}"])

    def _kinds_shown(self) -> list[str]:
        return sorted({one.name for recipe in self.shown for one in recipe.inputs if one.name in self.book.kinds})

    def step(self, action: str) -> Step:
        command = read_command(self.command_line(action))
        if isinstance(command, FetchItem):
            return self._say(self._fetch(command))
        if isinstance(command, CraftItem):
            return self._craft(command)
        if command is None:
            return Step(self.no_command, 0.0, False, False, {"format_error": True})
        return self._say(self.inventory_text())

    def inventory_text(self) -> str:
        """Return what the player has, in the order in which it came."""
        listed = ", ".join(f"{count} {item}" for item, count in self.inventory.items())
        return f"You have {listed or 'nothing'}."

    def _say(self, text: str) -> Step:
        return Step(text, 0.0, False, False, {})

    def _fetch(self, command: FetchItem) -> str:
        item = command.item
        if item in self.book.materials:
            self.inventory[item] = self.inventory.get(item, 0) + command.amount
            return f"You got {command.amount} {item}."
        if item in self.book.recipes:
            return f"You cannot get {item}: craft it from its recipe."
        if item in self.book.kinds:
            return f"You cannot get {item}: it is a kind of item. Get or craft one of the kind."
        return f"Nothing here is called {item}."

    def _craft(self, command: CraftItem) -> Step:
        recipe = next((one for one in self.book.recipes.get(command.item, ()) if self._fits(one, command.inputs)), None)
        if recipe is None:
            listed = ", ".join(f"{count} {name}" for name, count in command.inputs.items())
            return self._say(f"No recipe makes {command.item} from {listed}.")
        for name, count in command.inputs.items():
            if self.inventory.get(name, 0) < count:
                return self._say(f"You need {count} {name} for this recipe and have {self.inventory.get(name, 0)}.")
        for name, count in command.inputs.items():
            self.inventory[name] -= count
            if not self.inventory[name]:
                del self.inventory[name]
        self.inventory[recipe.output] = self.inventory.get(recipe.output, 0) + recipe.amount
        text = f"You crafted {recipe.amount} {recipe.output}."
        if recipe.output == self.goal:
            return Step(f"{text} That was the goal.", 1.0, True, False, {"success": True})
        return self._say(text)

    def _fits(self, recipe: Recipe, given: dict[str, int]) -> bool:
        """Return whether ``given`` is exactly what ``recipe`` takes. A member stands for its kind, in the recipe's number."""
        if len(given) != len(recipe.inputs):
            return False
        left = dict(given)
        kinds = []
        for one in recipe.inputs:
            if one.name in self.book.kinds:
                kinds.append(one)
            elif left.pop(one.name, 0) != one.amount:
                return False
        for one in kinds:
            member = next((name for name in self.book.kinds[one.name] if left.get(name) == one.amount), None)
            if member is None:
                return False
            del left[member]
        return True

    def oracle(self) -> str:
        return self.as_action(plan(self.book, self.goal, self.inventory)[0])

    def sample_random_action(self) -> str:
        """Return a command for a recipe that is shown: get one of its materials, or use it."""
        recipe = self._drawn(self.shown)
        one = self._drawn(recipe.inputs)
        name = self._drawn(self.book.kinds.get(one.name, (one.name,)))
        fetch = name in self.book.materials and self.action_rng.random() < 0.5
        return self.as_action(f"get {one.amount} {name}" if fetch else recipe.text)

    def _drawn(self, items: tuple[Any, ...]) -> Any:
        return items[int(self.action_rng.integers(len(items)))]

    def render(self) -> str:
        """Return the goal and the inventory as HTML for people."""
        return f"<p><b>{escape(self.goal)}</b></p><p>{escape(self.inventory_text())}</p>"

    def fork(self) -> "Crafting":
        twin = copy.copy(self)
        twin.inventory = dict(self.inventory)
        twin._rng, twin._action_rng = copy.deepcopy((self._rng, self._action_rng))
        return twin
