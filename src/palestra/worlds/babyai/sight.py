"""What the agent sees, and how to walk there.

The agent sees a square of 7 by 7 cells ahead of it, and no cell behind a wall or a closed door. ``look`` computes the same
cells as minigrid's own view. ``Sight`` names the things among them and finds the shortest run of primitive actions to each,
over cells that are in view.
"""

from collections import deque
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from palestra.worlds.babyai.world import FORWARD, LEFT, RIGHT, World

__all__ = ["AHEAD", "Cell", "Place", "Sight", "Thing", "look", "state_of"]

Cell = tuple[int, int]
Place = tuple[int, int, int]

AHEAD: tuple[Cell, ...] = ((1, 0), (0, 1), (-1, 0), (0, -1))
"""The step forward in each direction."""


class Thing(NamedTuple):
    """An object in view."""

    kind: str
    """``red ball``."""
    number: int
    """1 for the nearest of its kind, and so on."""
    cell: Cell
    ahead: int
    right: int
    """Negative if it is on the left."""
    state: str
    """``open``, ``closed`` or ``locked`` for a door; otherwise empty."""

    @property
    def name(self) -> str:
        return f"{self.kind} {self.number}"

    @property
    def is_door(self) -> bool:
        return bool(self.state)


def look(world: World) -> dict[Cell, Any]:
    """Return the cells in view and what is in them, ``None`` for an empty one; the agent's own cell comes first."""
    env = world.grid_env
    x, y, direction = world.place
    (ahead_x, ahead_y), width, height = AHEAD[direction], env.grid.width, env.grid.height
    size = env.agent_view_size
    half, cells = size // 2, env.grid.grid
    seen: dict[Cell, Any] = {}
    lit = [column == half for column in range(size)]
    for row in range(size):
        line: list[Any] = []
        clear: list[bool] = []
        base_x, base_y = x + ahead_x * row + ahead_y * half, y + ahead_y * row - ahead_x * half
        for column in range(size):
            at_x, at_y = base_x - ahead_y * column, base_y + ahead_x * column
            inside = 0 <= at_x < width and 0 <= at_y < height
            thing = cells[at_y * width + at_x] if inside else None
            line.append((at_x, at_y, thing) if inside else None)
            clear.append(inside and (thing is None or thing.see_behind()))
        lit, above = _spread(lit, clear)
        for column in range(size):
            if lit[column] and line[column] is not None:
                at_x, at_y, thing = line[column]
                seen[at_x, at_y] = thing
        lit = above
    seen[x, y] = cells[y * width + x]
    return seen


def _spread(lit: list[bool], clear: list[bool]) -> tuple[list[bool], list[bool]]:
    """Return which cells of a row are in view, and which of the row beyond: light passes clear cells, also diagonally."""
    last = len(lit) - 1
    above = [False] * (last + 1)
    for column in range(last):
        if lit[column] and clear[column]:
            lit[column + 1] = above[column] = above[column + 1] = True
    for column in range(last, 0, -1):
        if lit[column] and clear[column]:
            lit[column - 1] = above[column] = above[column - 1] = True
    return lit, above


class Sight:
    """One look at the world. It is computed when an observation is made, and the next action uses it."""

    sign_of_rows: ClassVar[int] = 1
    """Of two things at the same distance, the one in the nearer row comes first; -1 for the one in the farther row."""

    def __init__(self, world: World) -> None:
        self.place = world.place
        self.cells = look(world)
        self.carried = world.carried

    @cached_property
    def things(self) -> list[Thing]:
        """The objects in view, the nearest first."""
        x, y, direction = self.place
        ahead_x, ahead_y = AHEAD[direction]
        found: list[tuple[tuple[int, int, int], int, int, str, Cell, Any]] = []
        for cell, thing in self.cells.items():
            if thing is None or thing.type in ("wall", "floor") or cell == (x, y):
                continue
            off_x, off_y = cell[0] - x, cell[1] - y
            ahead, right = off_x * ahead_x + off_y * ahead_y, off_y * ahead_x - off_x * ahead_y
            order = (abs(ahead) + abs(right), self.sign_of_rows * ahead, right)
            found.append((order, ahead, right, self.kind_of(thing), cell, thing))
        found.sort(key=lambda one: one[0])
        numbers: dict[str, int] = {}
        things: list[Thing] = []
        for _, ahead, right, kind, cell, thing in found:
            numbers[kind] = numbers.get(kind, 0) + 1
            things.append(Thing(kind, numbers[kind], cell, ahead, right, state_of(thing)))
        return things

    def named(self, name: str) -> Thing | None:
        """Return the thing called ``name``."""
        return next((thing for thing in self.things if thing.name == name), None)

    @property
    def front(self) -> Cell:
        """The cell in front of the agent."""
        x, y, direction = self.place
        return x + AHEAD[direction][0], y + AHEAD[direction][1]

    @property
    def faced(self) -> Any:
        """What is in the cell in front of the agent; ``None`` if it is empty."""
        return self.cells.get(self.front)

    def free_ahead(self) -> tuple[int, Any]:
        """Return how many cells ahead are free and in view, and what ends the row; ``None`` if the view does."""
        x, y, direction = self.place
        for count in range(len(self.cells)):
            x, y = x + AHEAD[direction][0], y + AHEAD[direction][1]
            if not self.is_free((x, y)):
                return count, self.cells.get((x, y))
        return len(self.cells), None

    def way_to_face(self, cell: Cell) -> list[int] | None:
        """Return the fewest turns and steps after which the agent faces ``cell``, or ``None``."""
        return self._way(self._facing[cell]) if cell in self._facing else None

    @cached_property
    def _facing(self) -> dict[Cell, Place]:
        """For every cell that the agent can face: the place from which it does so first."""
        facing: dict[Cell, Place] = {}
        for x, y, direction in self._ways:
            facing.setdefault((x + AHEAD[direction][0], y + AHEAD[direction][1]), (x, y, direction))
        return facing

    @cached_property
    def _ways(self) -> dict[Place, tuple[int, Place]]:
        """Every place that the agent can reach in view, the nearest first: the last action, and the place before it."""
        reached: dict[Place, tuple[int, Place]] = {self.place: (-1, self.place)}
        queue = deque([self.place])
        while queue:
            place = x, y, direction = queue.popleft()
            forward = (x + AHEAD[direction][0], y + AHEAD[direction][1])
            if self.is_free(forward) and (there := (*forward, direction)) not in reached:
                reached[there] = (FORWARD, place)
                queue.append(there)
            for action, turned in ((LEFT, (direction - 1) % 4), (RIGHT, (direction + 1) % 4)):
                if (there := (x, y, turned)) not in reached:
                    reached[there] = (action, place)
                    queue.append(there)
        return reached

    def _way(self, place: Place) -> list[int]:
        way: list[int] = []
        while place != self.place:
            action, place = self._ways[place]
            way.append(action)
        return way[::-1]

    def kind_of(self, thing: Any) -> str:
        """Return what ``thing`` is called, without its number."""
        return f"{thing.color} {thing.type}"

    def is_free(self, cell: Cell) -> bool:
        """Return whether the agent can step on ``cell``, as far as it sees."""
        if cell not in self.cells:
            return False
        thing = self.cells[cell]
        return thing is None or bool(thing.can_overlap())


def state_of(thing: Any) -> str:
    """Return ``open``, ``closed`` or ``locked`` for a door, and an empty text for anything else."""
    if thing.type != "door":
        return ""
    return "locked" if thing.is_locked else "open" if thing.is_open else "closed"
