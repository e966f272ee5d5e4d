"""2048: slide and merge tiles until one reaches the target."""

from functools import lru_cache
from itertools import pairwise
from math import log2

from palestra.suite.games.directions import DIRECTIONS, DirectionGame
from palestra.suite.games.game import MoveOutcome, boxed, require
from palestra.suite.games.grids import grid

__all__ = ["Game2048"]

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((16, 20), (32, 30), (64, 50))
"""Target, turns."""

SIDE = 4

_STRENGTH: dict[tuple[tuple[int, int], ...], float] = {((512, 50),): 0.616, ((2048, 100),): 0.593}
"""Score of the oracle where the target is out of reach, over 1000 and 500 tasks (standard error 0.0007)."""

_TRIED_CELLS = 4
"""Approximate number of empty cells that the look-ahead tries for the next tile."""

Board = tuple[int, ...]
"""Tiles row by row; 0 is an empty cell."""

# For each direction the cells of each line, starting at the side to which the tiles slide.
_ROWS = tuple(tuple(range(start, start + SIDE)) for start in range(0, SIDE * SIDE, SIDE))
_COLUMNS = tuple(tuple(range(start, SIDE * SIDE, SIDE)) for start in range(SIDE))
_LINES = {
    "left": _ROWS,
    "right": tuple(line[::-1] for line in _ROWS),
    "up": _COLUMNS,
    "down": tuple(line[::-1] for line in _COLUMNS),
}


_MARKS = {0: "   .", **{1 << power: f"{1 << power:>4}" for power in range(1, 2 * SIDE * SIDE)}}
"""The mark of each tile; no tile can grow larger."""

_FRAME = "The board:\n" + grid(["%s"] * SIDE * SIDE, SIDE)


class Game2048(DirectionGame):
    """Slide all tiles to one side; equal tiles that meet merge. After each move a 2 (or, one time in ten, a 4) appears.

    Each doubling of the largest tile pays the same share, so that reaching ``target_tile`` pays 1 in total. A full board
    without a legal move ends the game. If ``target_tile`` or ``max_turns`` is ``None``, each task draws both.

    A move adds 2.2 on average, so after 50 moves the tiles sum to about 115: the targets of the hard levels (512 in 50 turns,
    2048 in 100) cannot be reached, as in GEM, and scores stay below 1. The oracle looks two moves ahead; it reached 64 within
    50 turns in each of 100 tasks, after 36 on average. The best strategy for the hard levels is not known: their ceiling is
    the score of this oracle.
    """

    def __init__(self, target_tile: int | None = 512, max_turns: int | None = 50) -> None:
        if target_tile is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            power = target_tile >= 8 and target_tile & (target_tile - 1) == 0
            require(power, f"target_tile must be a power of two from 8 on, got {target_tile}")
            require(max_turns >= 1, "max_turns must be at least 1")
            self._levels = ((target_tile, max_turns),)

    @property
    def ceiling(self) -> float | None:
        return _STRENGTH.get(self._levels)

    def begin(self) -> None:
        self.target, self.max_turns = self.draw(self._levels)
        self.board: Board = (0,) * (SIDE * SIDE)
        self._add_tile()
        self._add_tile()
        self.first_best = self.best = max(self.board)

    def rules(self) -> str:
        return (
            f"You are playing 2048.\n"
            f"Reach a tile of {self.target} within {self.max_turns} turns. A move slides all tiles to one side; two equal "
            f"tiles that meet merge into one of twice the value. After each move a new tile, 2 or 4, appears in an empty cell. "
            f"A move that changes nothing is refused.\n"
            f"{self.how_to_move}"
        )

    def view(self) -> str:
        return _FRAME % tuple([_MARKS[tile] for tile in self.board])

    def play(self, move: str) -> MoveOutcome:
        after = slid(self.board, move)
        if after == self.board:
            return MoveOutcome(f"At turn {self.turn}, you chose {move}, which changes nothing.")
        self.board = after
        reward = self._progress()
        self._add_tile()
        said = f"At turn {self.turn}, you slid the tiles {move}."
        if self.best >= self.target:
            return MoveOutcome(f"{said} You reached {self.target}. Well done!", reward, solved=True)
        if 0 not in self.board and all(slid(self.board, direction) == self.board for direction in DIRECTIONS):
            return MoveOutcome(f"{said} No move is left. The game is over.", reward, over=True)
        return MoveOutcome(said, reward)

    def _progress(self) -> float:
        largest = min(max(self.board), self.target)
        if largest <= self.best:
            return 0.0
        gained = log2(largest / self.best) / log2(self.target / self.first_best)
        self.best = largest
        return gained

    def _add_tile(self) -> None:
        cell = self.draw([cell for cell, tile in enumerate(self.board) if not tile])
        tile = 2 if self.rng.random() < 0.9 else 4
        self.board = (*self.board[:cell], tile, *self.board[cell + 1 :])

    def oracle(self) -> str:
        options = [(move, after) for move in DIRECTIONS if (after := slid(self.board, move)) != self.board]
        return boxed(max(options, key=lambda option: _expected(option[1]))[0])


def slid(board: Board, direction: str) -> Board:
    """Return the board after all tiles slid, without a new tile."""
    after = [0] * len(board)
    for a, b, c, d in _LINES[direction]:
        after[a], after[b], after[c], after[d] = _merged((board[a], board[b], board[c], board[d]))
    return tuple(after)


@lru_cache(maxsize=1 << 16)
def _merged(line: Board) -> Board:
    """Return a line after its tiles slid to the front."""
    tiles = [tile for tile in line if tile]
    merged: list[int] = []
    while tiles:
        tile = tiles.pop(0)
        if tiles and tiles[0] == tile:
            tile += tiles.pop(0)
        merged.append(tile)
    return (*merged, *[0] * (len(line) - len(merged)))


def _expected(board: Board) -> float:
    """Return the value of a board before its new tile: the best reply to a 2, averaged over some of the empty cells."""
    empty = [cell for cell, tile in enumerate(board) if not tile]
    empty = empty[:: len(empty) // _TRIED_CELLS or 1]
    total = 0.0
    for cell in empty:
        with_tile = (*board[:cell], 2, *board[cell + 1 :])
        total += max(_worth(slid(with_tile, move)) for move in DIRECTIONS)
    return total / len(empty)


def _worth(board: Board) -> float:
    """Return the value of a board: few and large tiles are good, and so are neighbors that can merge soon."""
    return sum(map(_worth_of_line, (board[0:4], board[4:8], board[8:12], board[12:16]))) + sum(
        map(_worth_of_line, (board[0::4], board[1::4], board[2::4], board[3::4]))
    )


@lru_cache(maxsize=1 << 16)
def _worth_of_line(line: Board) -> float:
    tiles = [tile for tile in line if tile]
    worth = sum(tile * log2(tile) for tile in tiles) + 2.0 * (SIDE - len(tiles))
    for mine, theirs in pairwise(tiles):
        worth += mine if mine == theirs else -abs(log2(mine) - log2(theirs))
    return worth
