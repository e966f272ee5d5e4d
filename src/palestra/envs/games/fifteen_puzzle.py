"""The fifteen puzzle: slide numbered tiles into order. Every start can be solved within the turn limit."""

from palestra.envs.games.directions import DIRECTIONS, OPPOSITE, DirectionGame
from palestra.envs.games.game import Outcome, boxed, require

__all__ = ["FifteenPuzzle"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((2, 10), (3, 20), (4, 50))
"""Side, turns."""


class FifteenPuzzle(DirectionGame):
    """Slide tiles into the gap until they stand in order with the gap last.

    The start is a walk of at most 4/5 of the turn limit away from the goal (no step undoes the one before), where a random
    board would have no solution half of the time, and seldom one within the limit. Worth 1 when solved; when the turns run out,
    the share of the places that are right. ``num_rows`` or ``max_turns`` of ``None`` draws both for each task. The oracle goes
    back the way that led here, which is not always the shortest.
    """

    def __init__(self, num_rows: int | None = 4, max_turns: int | None = 50) -> None:
        if num_rows is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(num_rows >= 2 and max_turns >= 1, "num_rows is at least 2 and max_turns at least 1")
            self._levels = ((num_rows, max_turns),)

    def begin(self) -> None:
        self.side, self.max_turns = self.draw(self._levels)
        most = max(1, self.max_turns * 4 // 5)
        self.board = self._goal()
        while self.board == self._goal():
            self.board, self.way_home = self._goal(), list[str]()
            for _ in range(int(self.rng.integers((most + 1) // 2, most + 1))):
                undo = self.way_home[-1] if self.way_home else ""
                self._slide(self.draw([move for move in DIRECTIONS if move != undo and self._tile_for(move) is not None]))

    def rules(self) -> str:
        last = self.side**2 - 1
        return (
            f"You are playing the {last}-puzzle.\n"
            f"Slide the tiles until they stand in order from 1 to {last}, row by row, with the gap ('__') in the bottom right "
            f"corner. You have {self.max_turns} turns.\n"
            f"A move slides a tile into the gap: 'up' the tile below the gap, 'down' the one above it, 'left' the one to the "
            f"right of it, 'right' the one to the left of it.\n"
            f"{self.how_to_move}"
        )

    def view(self) -> str:
        marks = [f"{tile:2}" if tile else "__" for tile in self.board]
        rows = (" ".join(marks[start : start + self.side]) for start in range(0, self.side**2, self.side))
        return "The board:\n" + "\n".join(rows)

    def play(self, move: str) -> Outcome:
        if self._tile_for(move) is None:
            return Outcome(f"At turn {self.turn}, you chose {move}, but there is no tile on that side of the gap.")
        tile = self._slide(move)
        said = f"At turn {self.turn}, you slid tile {tile} {move}."
        if self.board == self._goal():
            return Outcome(f"{said} The puzzle is solved. Well done!", 1.0, solved=True)
        return Outcome(said)

    def consolation(self, move: str, outcome: Outcome) -> float:
        return sum(mine == theirs for mine, theirs in zip(self.board, self._goal(), strict=True)) / self.side**2

    def oracle(self) -> str:
        return boxed(self.way_home[-1])

    def _goal(self) -> list[int]:
        return [*range(1, self.side**2), 0]

    def _tile_for(self, move: str) -> int | None:
        """The place of the tile that ``move`` slides into the gap."""
        row, column = divmod(self.board.index(0), self.side)
        row += (move == "up") - (move == "down")
        column += (move == "left") - (move == "right")
        return row * self.side + column if 0 <= row < self.side and 0 <= column < self.side else None

    def _slide(self, move: str) -> int:
        """Make a possible ``move``, keep the way home, and tell the tile."""
        gap, place = self.board.index(0), self._tile_for(move)
        assert place is not None
        tile = self.board[place]
        self.board[gap], self.board[place] = tile, 0
        if self.way_home and self.way_home[-1] == move:
            self.way_home.pop()
        else:
            self.way_home.append(OPPOSITE[move])
        return tile
