"""The fifteen puzzle: slide numbered tiles into order. Every start can be solved within the turn limit."""

from collections.abc import Mapping
from functools import cache

from palestra.suite.games.directions import OPPOSITE, DirectionGame
from palestra.suite.games.game import MoveOutcome, boxed, require
from palestra.suite.games.grids import grid

__all__ = ["FifteenPuzzle"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((2, 10), (3, 20), (4, 50))
"""Side, turns."""

_SHARES = 12
"""Probabilities are counted in twelfths, so that two, three or four moves have equal shares."""


class FifteenPuzzle(DirectionGame):
    """Slide tiles into the gap until they stand in order with the gap last.

    The start is made by random moves away from the goal, at most 4/5 of the turn limit, none of which undoes the one before.
    (Half of all random boards have no solution.) A solved board pays 1. When the turns run out, the reward is the share of
    tiles in the right place. If ``num_rows`` or ``max_turns`` is ``None``, each task draws both. The oracle goes back the way
    that led to the position, which is not always the shortest.
    """

    def __init__(self, num_rows: int | None = 4, max_turns: int | None = 50) -> None:
        if num_rows is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(num_rows >= 2 and max_turns >= 1, "num_rows must be at least 2 and max_turns at least 1")
            self._levels = ((num_rows, max_turns),)

    def begin(self) -> None:
        self.side, self.max_turns = self.draw(self._levels)
        most = max(1, self.max_turns * 4 // 5)
        self.board = goal = self._goal()
        while self.board == goal:
            self._walk((most + 1) // 2, most)

    def _walk(self, least: int, most: int) -> None:
        """Walk ``least`` to ``most`` steps away from the goal, without undoing a step."""
        board, way_home = self._goal(), list[str]()
        onward, gap = _onward(self.side), len(board) - 1
        state = len(onward) - 1
        first, *chances = self.rng.random(most + 1).tolist()
        for chance in chances[: least + int(first * (most - least + 1))]:
            place, undo, state = onward[state][int(chance * _SHARES)]
            board[gap] = board[place]
            gap = place
            way_home.append(undo)
        board[gap] = 0
        self.board, self.way_home = board, way_home

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
        marks, frame = _writing(self.side)
        return frame % tuple([marks[tile] for tile in self.board])

    def play(self, move: str) -> MoveOutcome:
        gap = self.board.index(0)
        place = _tiles(self.side)[gap].get(move)
        if place is None:
            return MoveOutcome(f"At turn {self.turn}, you chose {move}, but there is no tile on that side of the gap.")
        tile = self.board[place]
        self.board[gap], self.board[place] = tile, 0
        if self.way_home and self.way_home[-1] == move:
            self.way_home.pop()
        else:
            self.way_home.append(OPPOSITE[move])
        said = f"At turn {self.turn}, you slid tile {tile} {move}."
        if self.board == self._goal():
            return MoveOutcome(f"{said} The puzzle is solved. Well done!", 1.0, solved=True)
        return MoveOutcome(said)

    def consolation(self, move: str, outcome: MoveOutcome) -> float:
        return sum(mine == theirs for mine, theirs in zip(self.board, self._goal(), strict=True)) / self.side**2

    def oracle(self) -> str:
        return boxed(self.way_home[-1])

    def _goal(self) -> list[int]:
        return list(_goal(self.side))


@cache
def _goal(side: int) -> tuple[int, ...]:
    return (*range(1, side**2), 0)


@cache
def _writing(side: int) -> tuple[tuple[str, ...], str]:
    """Return the marks of the gap and of every tile, and a board with a %s for each."""
    marks = ("__", *(f"{tile:2}" for tile in range(1, side**2)))
    return marks, "The board:\n" + grid(["%s"] * side**2, side)


@cache
def _tiles(side: int) -> tuple[Mapping[str, int], ...]:
    """Return, for every place of the gap, the possible moves and the place of the tile that each slides."""
    places: list[Mapping[str, int]] = []
    for gap in range(side**2):
        row, column = divmod(gap, side)
        around = {
            "up": (row + 1, column),
            "down": (row - 1, column),
            "left": (row, column + 1),
            "right": (row, column - 1),
        }
        places.append({move: r * side + c for move, (r, c) in around.items() if 0 <= r < side and 0 <= c < side})
    return tuple(places)


@cache
def _onward(side: int) -> tuple[tuple[tuple[int, str, int], ...], ...]:
    """Return a random walk as a table: for every state, ``_SHARES`` equally likely steps.

    A step holds the new place of the gap, the move that undoes the step, and the next state. A state is a place of the gap and
    the move that would undo the last step. The last state is the start: the gap at home, no step made.
    """
    states = [(gap, undo) for gap in range(side**2) for undo in (*OPPOSITE, "")]
    number = {state: place for place, state in enumerate(states)}
    table = []
    for gap, undo in states:
        ways = [(place, OPPOSITE[move]) for move, place in _tiles(side)[gap].items() if move != undo]
        shares = [ways[share * len(ways) // _SHARES] for share in range(_SHARES)]
        table.append(tuple((place, back, number[place, back]) for place, back in shares))
    return tuple(table)
