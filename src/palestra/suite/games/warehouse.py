"""Warehouses for Sokoban: drawn by playing backwards, solved by searching forwards.

A cell is ``row * columns + column``; a set of cells is an integer, one bit per cell. A warehouse starts solved, with every
box on a goal, and is then played in reverse: the player walks and pulls. Reversed, that is a solution of known length, so
every warehouse can be solved within its turn limit.
"""

import heapq
from collections import deque
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np

from palestra.suite.games.bitsets import bits
from palestra.suite.games.directions import OPPOSITE

__all__ = ["Position", "Warehouse", "draw_warehouse", "offsets", "solve"]

_WALL_SHARE = 0.2
"""Approximate share of the inside that becomes wall."""

_MOST_DRAWS = 200
"""Most warehouses drawn to find one with all boxes off the goals and a solution of some length; a few are enough."""

_MOST_POSITIONS = 2000
"""Most positions that the solver visits before it gives up: some tens of milliseconds."""


class Warehouse(NamedTuple):
    """A start position and the moves of a solution, the first move last."""

    floor: int
    goals: int
    boxes: int
    player: int
    way: list[str]


def offsets(columns: int) -> dict[str, int]:
    """Return how each move changes the number of a cell."""
    return {"up": -columns, "down": columns, "left": -1, "right": 1}


def draw_warehouse(rng: np.random.Generator, size: tuple[int, int], num_boxes: int, most_moves: int) -> Warehouse:
    """Draw a warehouse of ``size`` with all boxes off the goals, solvable in ``most_moves`` moves."""
    drawn: list[Warehouse] = []
    for _ in range(_MOST_DRAWS):
        floor = _draw_floor(rng, *size)
        cells = rng.permutation(list(bits(floor)))[: num_boxes + 1].tolist()
        drawn.append(_play_backwards(rng, size[1], floor, cells, most_moves))
        if not drawn[-1].boxes & drawn[-1].goals and len(drawn[-1].way) >= most_moves // 3:
            return drawn[-1]
    return max(drawn, key=lambda one: ((one.boxes & ~one.goals).bit_count(), len(one.way)))


def _draw_floor(rng: np.random.Generator, rows: int, columns: int) -> int:
    """Draw a connected floor, surrounded by walls and with some walls in it."""
    inside = [row * columns + column for row in range(1, rows - 1) for column in range(1, columns - 1)]
    floor = sum(1 << cell for cell in inside)
    for cell in rng.permutation(inside)[: round(len(inside) * _WALL_SHARE)].tolist():
        without = floor & ~(1 << cell)
        start = (without & -without).bit_length() - 1
        if _reach(columns, without, start) == without:
            floor = without
    return floor


def _walks(columns: int, free: int, start: int) -> dict[int, tuple[int, str]]:
    """Return, for every cell that can be walked to, its distance in steps and the last step."""
    found = {start: (0, "")}
    moves = tuple(offsets(columns).items())
    unseen = free & ~(1 << start)
    queue = deque([start])
    while queue:
        cell = queue.popleft()
        steps = found[cell][0] + 1
        for move, offset in moves:
            there = cell + offset
            if unseen >> there & 1:
                unseen ^= 1 << there
                found[there] = (steps, move)
                queue.append(there)
    return found


def _walk_to(columns: int, walks: dict[int, tuple[int, str]], there: int) -> list[str]:
    """Return the steps of the shortest walk to ``there``."""
    steps: list[str] = []
    while walks[there][1]:
        steps.append(walks[there][1])
        there -= offsets(columns)[steps[-1]]
    return steps[::-1]


def _play_backwards(rng: np.random.Generator, columns: int, floor: int, chosen: list[int], most_moves: int) -> Warehouse:
    """Pull boxes off their goals as long as moves are left. ``chosen`` are the player and the goals."""
    player, *on_goals = chosen
    goals = boxes = sum(1 << cell for cell in on_goals)
    moves: list[str] = []
    while True:
        walks = _walks(columns, floor & ~boxes, player)
        if not moves:  # a solution must not end with walking: start next to a box
            walks = dict.fromkeys(walks, (0, ""))
        pulls = _pulls(columns, floor, boxes, walks, most_moves - len(moves))
        if not pulls:
            return Warehouse(floor, goals, boxes, player, [OPPOSITE[move] for move in moves])
        liking = rng.random(len(pulls)).tolist()
        worth = [luck + (goals >> box & 1) - walks[stand][0] / 8 for luck, (box, stand, _) in zip(liking, pulls, strict=True)]
        box, stand, move = pulls[worth.index(max(worth))]
        moves += [*_walk_to(columns, walks, stand), move]
        boxes ^= 1 << box | 1 << stand
        player = stand + offsets(columns)[move]


def _pulls(columns: int, floor: int, boxes: int, walks: dict[int, tuple[int, str]], most: int) -> list[tuple[int, int, str]]:
    """Return every pull that the player can still make: the box, the player's cell (where the box goes), the direction."""
    free = floor & ~boxes
    found = []
    moves = tuple(offsets(columns).items())
    for stand, (steps, _) in walks.items():
        if steps + 1 > most:
            continue
        for move, offset in moves:
            if boxes >> (stand - offset) & 1 and free >> (stand + offset) & 1:
                found.append((stand - offset, stand, move))
    return found


class Position(NamedTuple):
    """The cells of the boxes and of the player."""

    boxes: int
    player: int


def solve(columns: int, floor: int, goals: int, start: Position) -> list[str] | None:
    """Return moves that bring all boxes to goals, the first one last; ``None`` if the search gave up.

    A best-first search over pushes, guided by the distance of each box to its nearest goal. Not the shortest solution.
    """
    far = _pushes_to_a_goal(columns, floor, goals)
    alive = sum(1 << cell for cell in far)
    if start.boxes & ~alive:
        return None
    numbers = count()  # ties are broken by order of arrival
    before: dict[Position, tuple[Position, str]] = {}
    queue = [(0, next(numbers), start)]
    seen = {(start.boxes, _reach(columns, floor & ~start.boxes, start.player))}
    while queue and len(seen) < _MOST_POSITIONS:
        _, _, position = heapq.heappop(queue)
        for after, move in _pushes(columns, floor, alive, position):
            key = (after.boxes, _reach(columns, floor & ~after.boxes, after.player))
            if key in seen:
                continue
            seen.add(key)
            before[after] = (position, move)
            if after.boxes == goals:
                return _retraced(columns, floor, before, after)
            heapq.heappush(queue, (sum(far[cell] for cell in bits(after.boxes)), next(numbers), after))
    return None


def _shifted(cells: int, offset: int) -> int:
    return cells << offset if offset > 0 else cells >> -offset


def _reach(columns: int, free: int, player: int) -> int:
    """Return all cells that the player can walk to."""
    reached, fresh = 0, 1 << player
    while fresh != reached:
        reached = fresh
        for offset in (1, -1, columns, -columns):
            fresh |= _shifted(reached, offset) & free
    return reached


def _pushes(columns: int, floor: int, alive: int, position: Position) -> Iterator[tuple[Position, str]]:
    """Yield every push from here after which the box can still reach a goal."""
    boxes, player = position
    reached = _reach(columns, floor & ~boxes, player)
    for move, offset in offsets(columns).items():
        room = _shifted(alive & floor & ~boxes, -offset)
        for box in bits(boxes & _shifted(reached, offset) & room):
            yield Position(boxes ^ (1 << box | 1 << box + offset), box), move


def _pushes_to_a_goal(columns: int, floor: int, goals: int) -> dict[int, int]:
    """Return the pushes that bring a lone box from each cell to its nearest goal, where that is possible."""
    found = dict.fromkeys(bits(goals), 0)
    queue = deque(found)
    while queue:
        cell = queue.popleft()
        for offset in offsets(columns).values():
            came_from, player = cell - offset, cell - 2 * offset
            if floor >> came_from & 1 and player >= 0 and floor >> player & 1 and came_from not in found:
                found[came_from] = found[cell] + 1
                queue.append(came_from)
    return found


def _retraced(columns: int, floor: int, before: dict[Position, tuple[Position, str]], position: Position) -> list[str]:
    """Return the pushes that led to ``position`` with the walks between them, the last move first."""
    moves: list[str] = []
    while position in before:
        earlier, push = before[position]
        walks = _walks(columns, floor & ~earlier.boxes, earlier.player)
        stand = position.player - offsets(columns)[push]
        moves += [push, *reversed(_walk_to(columns, walks, stand))]
        position = earlier
    return moves
