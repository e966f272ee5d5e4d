"""Frozen lake: cross the ice to the goal without falling through a hole."""

import heapq
from functools import cache

from palestra.suite.games.directions import DIRECTIONS, DirectionGame
from palestra.suite.games.game import MoveOutcome, boxed, require

__all__ = ["FrozenLake"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((4, 24), (6, 36), (8, 48))
"""Side, turns."""

_MEAN_CHANCES: dict[tuple[tuple[tuple[int, int], ...], float, float], float] = {(((8, 96),), 0.2, 0.25): 0.778}
"""Best probability to arrive, averaged over 1000 lakes (standard error 0.0045), by level, slip and holes."""

_CEILING_LAKES = 20
"""Number of lakes in the average for other parameters: about a second."""

_OFFSETS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
_ASIDE = {"up": ("left", "right"), "down": ("left", "right"), "left": ("up", "down"), "right": ("up", "down")}


class FrozenLake(DirectionGame):
    """Walk from the top left to the bottom right corner of a lake with visible holes.

    The goal pays 1; a hole ends the game. A winding safe path is drawn first and the holes are placed beside it, so every lake
    can be crossed within the turn limit. ``slip`` is the probability that a step goes to one of the two sides instead. If
    ``size`` or ``max_turns`` is ``None``, each task draws both. The oracle makes the best step for the remaining turns. If
    ``slip`` is 0, it always reaches the goal.
    """

    def __init__(self, size: int | None = 8, max_turns: int | None = 48, slip: float = 0.0, holes: float = 0.25) -> None:
        if size is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(size >= 2 and max_turns >= 6 * size, "size must be at least 2 and max_turns at least six times the size")
            self._levels = ((size, max_turns),)
        require(0.0 <= slip < 1.0 and 0.0 <= holes <= 1.0, "slip must be in [0, 1) and holes in [0, 1]")
        self._slip, self._holes = slip, holes

    @property
    def ceiling(self) -> float | None:
        # The best probability to arrive is exact for each lake; its mean over lakes is measured.
        return _mean_chance(self._levels, self._slip, self._holes) if self._slip else None

    def begin(self) -> None:
        self.size, self.max_turns = self.draw(self._levels)
        cells = self.size**2
        way = self._draw_way()
        beside = [cell for cell in range(cells) if cell not in way]
        count = min(len(beside), round(self._holes * cells))
        self.holes = frozenset(beside[place] for place in self.rng.permutation(len(beside))[:count].tolist())
        self.player = 0
        self._values: list[list[float]] | None = None

    def _draw_way(self) -> set[int]:
        """Return the cells of the cheapest path from corner to corner; each cell costs 0.5 to 1.5 at random.

        A straight path costs at most 1.5 per step, so the cheapest path has at most three times its steps.
        """
        costs = (self.rng.random(self.size**2) + 0.5).tolist()
        goal = self.size**2 - 1
        came_from = {0: 0}
        queue = [(0.0, 0, 0)]
        done: set[int] = set()
        while goal not in done:
            cost, cell, before = heapq.heappop(queue)
            if cell in done:
                continue
            done.add(cell)
            came_from[cell] = before
            for move in DIRECTIONS:
                there = self._there(cell, move)
                heapq.heappush(queue, (cost + costs[there], there, cell))
        way = {goal, 0}
        while goal:
            goal = came_from[goal]
            way.add(goal)
        return way

    def rules(self) -> str:
        slips = (
            f"The ice is slippery: with a chance of {self._slip:.0%} you slide to one of the two sides instead.\n"
            if self._slip
            else ""
        )
        return (
            f"You are crossing a frozen lake of {self.size} by {self.size} cells.\n"
            f"Walk from the top left corner to the goal ('G') within {self.max_turns} turns. 'P' is you, '.' is ice, 'O' is a "
            f"hole: step on one, and the game is over. A step off the lake leaves you where you are.\n"
            f"{slips}{self.how_to_move}"
        )

    def view(self) -> str:
        marks = ["O" if cell in self.holes else "." for cell in range(self.size**2)]
        marks[-1] = "G"
        marks[self.player] = "P"
        rows = (" ".join(marks[start : start + self.size]) for start in range(0, len(marks), self.size))
        return "The lake:\n" + "\n".join(rows)

    def play(self, move: str) -> MoveOutcome:
        way = move
        if self._slip and self.rng.random() < self._slip:
            way = self.draw(_ASIDE[move])
        before, self.player = self.player, self._there(self.player, way)
        said = f"At turn {self.turn}, you went {move}" + (f" but slipped {way}" if way != move else "")
        if self.player in self.holes:
            return MoveOutcome(f"{said} and fell into a hole. The game is over.", over=True)
        if self.player == self.size**2 - 1:
            return MoveOutcome(f"{said} and reached the goal. Well done!", 1.0, solved=True)
        return MoveOutcome(f"{said}, which leads off the lake." if self.player == before else f"{said}.")

    def _there(self, cell: int, way: str) -> int:
        row, column = cell // self.size + _OFFSETS[way][0], cell % self.size + _OFFSETS[way][1]
        return row * self.size + column if 0 <= row < self.size and 0 <= column < self.size else cell

    def oracle(self) -> str:
        if self._values is None:
            self._values = self._chances()
        after = self._values[self.max_turns - self.turn - 1]
        return boxed(max(DIRECTIONS, key=lambda move: self._chance(self.player, move, after)))

    def _chance(self, cell: int, move: str, after: list[float]) -> float:
        """Return the probability to arrive after ``move``; ``after`` holds the probabilities of the next cells."""
        straight = after[self._there(cell, move)]
        if not self._slip:
            return straight
        aside = sum(after[self._there(cell, way)] for way in _ASIDE[move])
        return (1 - self._slip) * straight + self._slip * aside / 2

    def _chances(self) -> list[list[float]]:
        """Return, for each number of remaining turns from 0, the probability to arrive from every cell."""
        # Arriving earlier is slightly better, so that the oracle takes no detours.
        patience = 1.0 - 1e-9
        goal = self.size**2 - 1
        tables = [[float(cell == goal) for cell in range(goal + 1)]]
        ways = {cell: self._ways(cell) for cell in range(goal) if cell not in self.holes}
        straight, aside = 1 - self._slip, self._slip
        for _ in range(self.max_turns):
            table, after = [0.0] * goal + [1.0], tables[-1]
            for cell, moves in ways.items():
                chances = [straight * after[ahead] + aside * (after[one] + after[other]) / 2 for ahead, one, other in moves]
                table[cell] = patience * max(chances)
            tables.append(table)
        return tables

    def _ways(self, cell: int) -> list[tuple[int, int, int]]:
        """Return, for each move, the cell ahead of ``cell`` and the two cells to which the player may slip."""
        there = {move: self._there(cell, move) for move in DIRECTIONS}
        return [(there[move], there[_ASIDE[move][0]], there[_ASIDE[move][1]]) for move in DIRECTIONS]


@cache
def _mean_chance(levels: tuple[tuple[int, int], ...], slip: float, holes: float) -> float:
    """Return the probability that optimal play arrives, averaged over lakes."""
    if (levels, slip, holes) in _MEAN_CHANCES:
        return _MEAN_CHANCES[levels, slip, holes]
    total = 0.0
    for size, max_turns in levels:
        lake = FrozenLake(size, max_turns, slip, holes)
        for seed in range(_CEILING_LAKES):
            lake.reset(seed=seed)
            total += lake._chances()[max_turns][0]
    return total / (len(levels) * _CEILING_LAKES)
