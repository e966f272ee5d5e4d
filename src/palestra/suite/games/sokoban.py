"""Sokoban: push all boxes onto goals. Every warehouse can be solved within the turn limit."""

from palestra.suite.games.directions import OPPOSITE, DirectionGame
from palestra.suite.games.game import MoveOutcome, boxed, require
from palestra.suite.games.warehouse import Position, draw_warehouse, offsets, solve

__all__ = ["Sokoban"]

_RANDOM_LEVELS: tuple[tuple[tuple[int, int], int, int], ...] = (((6, 6), 2, 20), ((8, 8), 5, 50))
"""Size, boxes, turns."""


class Sokoban(DirectionGame):
    """Push boxes, one at a time, until all are on goals. Boxes cannot be pulled.

    A solved warehouse pays 1. When the turns run out, the reward is the share of boxes on goals. A known solution takes at
    most 4/5 of the turns. If a parameter is ``None``, each task draws its own level. The oracle follows that solution; if the
    player has left it, the oracle searches for a new one for some tens of milliseconds, and makes any legal move if it finds
    none.
    """

    def __init__(
        self, dim_room: tuple[int, int] | None = (8, 8), num_boxes: int | None = 4, max_turns: int | None = 50
    ) -> None:
        if dim_room is None or num_boxes is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            rows, columns = dim_room
            require(min(rows, columns) >= 5, f"a room must have at least 5 rows and columns, got {rows} and {columns}")
            inside = (rows - 2) * (columns - 2)
            require(1 <= num_boxes <= inside // 6, f"this room has space for 1 to {inside // 6} boxes, got {num_boxes}")
            require(max_turns >= 5 * num_boxes, f"{num_boxes} boxes need at least {5 * num_boxes} turns, got {max_turns}")
            self._levels = (((rows, columns), num_boxes, max_turns),)

    def begin(self) -> None:
        self.size, self.num_boxes, self.max_turns = self.draw(self._levels)
        drawn = draw_warehouse(self.rng, self.size, self.num_boxes, self.max_turns * 4 // 5)
        self.floor_cells, self.goals, self.boxes, self.player = drawn[:4]
        self.way: list[str] | None = drawn.way

    def rules(self) -> str:
        return (
            f"You are playing Sokoban.\n"
            f"Push every box onto a goal within {self.max_turns} turns. You push a box by walking against it; you cannot pull, "
            f"nor push two boxes at once or a box into a wall.\n"
            f"On the board '#' is a wall, '_' the floor, 'O' a goal, 'X' a box, '√' a box on a goal, 'P' you, 'S' you on a "
            f"goal.\n"
            f"{self.how_to_move}"
        )

    def view(self) -> str:
        rows, columns = self.size
        marks = [self._mark(cell) for cell in range(rows * columns)]
        return "The board:\n" + "\n".join(" ".join(marks[start : start + columns]) for start in range(0, len(marks), columns))

    def play(self, move: str) -> MoveOutcome:
        offset = offsets(self.size[1])[move]
        there = self.player + offset
        pushed = self.boxes >> there & 1
        free = self.floor_cells & ~self.boxes
        if not free >> (there + offset if pushed else there) & 1:
            return MoveOutcome(f"At turn {self.turn}, you cannot move {move}: a wall or a box is in the way.")
        if pushed:
            self.boxes ^= 1 << there | 1 << there + offset
        self.player = there
        self._keep_way(move, bool(pushed))
        said = f"At turn {self.turn}, you moved {move}{' and pushed a box' if pushed else ''}."
        if self.boxes == self.goals:
            return MoveOutcome(f"{said} All boxes are on goals. Well done!", 1.0, solved=True)
        return MoveOutcome(said)

    def consolation(self, move: str, outcome: MoveOutcome) -> float:
        return (self.boxes & self.goals).bit_count() / self.num_boxes

    def _keep_way(self, move: str, pushed: bool) -> None:
        """Follow the known solution, step back onto it after a walk, or forget it after a push."""
        if self.way and self.way[-1] == move:
            self.way.pop()
        elif self.way and not pushed:
            self.way.append(OPPOSITE[move])
        else:
            self.way = None

    def _mark(self, cell: int) -> str:
        if cell == self.player:
            return "S" if self.goals >> cell & 1 else "P"
        if self.boxes >> cell & 1:
            return "√" if self.goals >> cell & 1 else "X"
        if self.goals >> cell & 1:
            return "O"
        return "_" if self.floor_cells >> cell & 1 else "#"

    def oracle(self) -> str:
        if self.way is None:
            # An empty list means that the search failed; it is tried again after the next move.
            self.way = solve(self.size[1], self.floor_cells, self.goals, Position(self.boxes, self.player)) or []
        if self.way:
            return boxed(self.way[-1])
        free = self.floor_cells & ~self.boxes
        walks = [move for move, offset in offsets(self.size[1]).items() if free >> (self.player + offset) & 1]
        return boxed(walks[0] if walks else "up")
