"""A maze without a map: the player sees the position and the open directions."""

from collections import deque

from palestra.suite.games.directions import OPPOSITE, DirectionGame
from palestra.suite.games.game import MoveOutcome, boxed, require

__all__ = ["Maze"]

_OFFSETS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}

_RANDOM_SIZES = (4, 6, 8)

Cell = tuple[int, int]


class Maze(DirectionGame):
    """Find the exit of a maze with exactly one path between any two cells.

    The exit pays 1. If ``size`` is ``None``, each task draws it. By default, ``max_turns`` is the largest number of steps that
    a depth-first search needs. The oracle knows the maze and takes the shortest way.
    """

    def __init__(self, size: int | None = 8, max_turns: int | None = None) -> None:
        require(size is None or size >= 2, f"size must be at least 2, got {size}")
        require(max_turns is None or max_turns >= 1, f"max_turns must be at least 1, got {max_turns}")
        self._sizes = _RANDOM_SIZES if size is None else (size,)
        self._turns = max_turns

    def begin(self) -> None:
        self.size = self.draw(self._sizes)
        # Every passage, there and back.
        self.max_turns = self._turns or 2 * (self.size**2 - 1)
        self.ways = self._dig()
        cells = sorted(self.ways)
        self.player = self.draw(cells)
        self.exit = self.draw([cell for cell in cells if cell != self.player])

    def _dig(self) -> dict[Cell, list[str]]:
        """Return the open ways from each cell: a random walk that continues from the last cell with an undug neighbor."""
        ways: dict[Cell, list[str]] = {(0, 0): []}
        trail = [(0, 0)]
        while trail:
            row, column = trail[-1]
            fresh = [
                (way, there)
                for way, (down, right) in _OFFSETS.items()
                if (there := (row + down, column + right)) not in ways and min(there) >= 0 and max(there) < self.size
            ]
            if not fresh:
                trail.pop()
                continue
            way, there = self.draw(fresh)
            ways[row, column].append(way)
            ways[there] = [OPPOSITE[way]]
            trail.append(there)
        return ways

    def rules(self) -> str:
        return (
            f"You are in a maze of {self.size} by {self.size} cells, without a map.\n"
            f"Find the way to the exit in row {self.exit[0]}, column {self.exit[1]} within {self.max_turns} turns. Rows count "
            f"downwards and columns to the right, both from 0.\n"
            f"{self.how_to_move}"
        )

    def view(self) -> str:
        ways = [way for way in _OFFSETS if way in self.ways[self.player]]
        return f"You are in row {self.player[0]}, column {self.player[1]}. Open ways: {', '.join(ways)}."

    def play(self, move: str) -> MoveOutcome:
        if move not in self.ways[self.player]:
            return MoveOutcome(f"At turn {self.turn}, you went {move} into a wall.")
        self.player = (self.player[0] + _OFFSETS[move][0], self.player[1] + _OFFSETS[move][1])
        if self.player == self.exit:
            return MoveOutcome(f"At turn {self.turn}, you went {move} and found the exit. Well done!", 1.0, solved=True)
        return MoveOutcome(f"At turn {self.turn}, you went {move}.")

    def oracle(self) -> str:
        # In a search from the exit, the step that first reaches the player's cell is the way back, reversed.
        towards: dict[Cell, str] = {self.exit: ""}
        queue = deque([self.exit])
        while self.player not in towards:
            row, column = queue.popleft()
            for way in self.ways[row, column]:
                there = (row + _OFFSETS[way][0], column + _OFFSETS[way][1])
                if there not in towards:
                    towards[there] = OPPOSITE[way]
                    queue.append(there)
        return boxed(towards[self.player])
