"""Connect four against an opponent that looks a given number of moves ahead."""

from collections.abc import Iterator

from palestra.suite.games.duel import SKILLS, Duel
from palestra.suite.games.game import boxed, require

__all__ = ["ConnectFour", "searched"]

COLUMNS, ROWS = 7, 6

# A column has one more bit than cells: the spare bit on top keeps lines from continuing in the next column. Cell
# 7 * column + row, rows from the bottom.
_STRIDE = ROWS + 1
_CELLS = sum(1 << _STRIDE * column + row for column in range(COLUMNS) for row in range(ROWS))
_BOTTOM = sum(1 << _STRIDE * column for column in range(COLUMNS))
_COLUMN_CELLS = tuple(((1 << ROWS) - 1) << _STRIDE * column for column in range(COLUMNS))
_MIDDLE_FIRST = sorted(range(COLUMNS), key=lambda column: abs(column - COLUMNS // 2))
_COLUMNS_MIDDLE_FIRST = tuple(_COLUMN_CELLS[column] for column in _MIDDLE_FIRST)

_STEPS = (1, _STRIDE, _STRIDE - 1, _STRIDE + 1)
"""Distance from a cell to the next one upwards, to the right, and along both diagonals."""

_WIN = 1000
_ORACLE_DEPTH = 6

_STRENGTH = {((0.5,), 1): 0.998, ((1.0,), 3): 0.909, (SKILLS, 3): 0.981}
"""Score of the oracle by skills and depth, over 200, 500 and 500 tasks (standard errors 0.003 to 0.009)."""


class ConnectFour(Duel):
    """Four in a row, column or diagonal; discs fall to the lowest free cell of a column, numbered from 1 to 7.

    With probability ``skill`` the opponent looks ``depth`` moves ahead; otherwise it plays a random column. If ``skill`` is
    ``None``, each task draws it. The oracle looks six moves ahead: it won 99.5 % of 200 tasks on easy (skill 0.5, depth 1)
    and, of 500 tasks each, 82 % on hard (skill 1, depth 3), drawing or losing the others, and 97 % on random. The best
    strategy against such opponents is not known: the ceiling is the score of this oracle.
    """

    most_turns = COLUMNS * ROWS

    def __init__(self, skill: float | None = 1.0, depth: int = 3) -> None:
        super().__init__(skill)
        require(1 <= depth <= 6, f"depth must be 1 to 6, got {depth}")
        self._depth = depth

    @property
    def ceiling(self) -> float | None:
        return _STRENGTH.get((self._skills, self._depth))

    def rules(self) -> str:
        return (
            "You are playing connect four against an opponent.\n"
            "You are X, the opponent is O. A disc falls to the lowest free cell of its column. Whoever gets four in a row, "
            "column or diagonal first wins. The opponent answers each of your moves.\n"
            f"Think as long as you like, then give a column from 1 to {COLUMNS} inside \\boxed{{}}, for example {boxed(4)}."
        )

    def view(self) -> str:
        lines = [" ".join(self.mark(_STRIDE * column + row, ".") for column in range(COLUMNS)) for row in range(ROWS)]
        numbers = " ".join(str(column + 1) for column in range(COLUMNS))
        return "The board:\n" + "\n".join([*reversed(lines), numbers])

    def legal(self) -> list[int]:
        taken = self.mine | self.theirs
        return [column + 1 for column in range(COLUMNS) if _COLUMN_CELLS[column] & ~taken]

    def cell(self, move: int) -> int:
        free = _COLUMN_CELLS[move - 1] & ~(self.mine | self.theirs)
        return (free & -free).bit_length() - 1

    def won(self, cells: int) -> bool:
        return _won(cells)

    def good_replies(self) -> list[int]:
        scores = searched(self.theirs, self.mine, self._depth)
        return [column + 1 for column, score in scores.items() if score == max(scores.values())]

    def oracle(self) -> str:
        best, chosen = -_WIN * 2, 0
        for column, disc in _drops(self.mine | self.theirs):
            # A column that cannot beat the best so far needs no exact score.
            score = _score(self.mine, self.theirs, disc, _ORACLE_DEPTH, best)
            if score > best:
                best, chosen = score, column
        return boxed(chosen + 1)

    def constant_answers(self) -> list[str]:
        return [boxed(column) for column in range(1, COLUMNS + 1)]


def searched(mover: int, other: int, depth: int) -> dict[int, int]:
    """Return the score of each column for the player to move, looking ``depth`` moves ahead; middle columns first."""
    return {column: _score(mover, other, disc, depth, -_WIN * 2) for column, disc in _drops(mover | other)}


def _score(mover: int, other: int, disc: int, depth: int, worst: int) -> int:
    """Return the score of dropping ``disc``, or any number up to ``worst`` if it is not above ``worst``."""
    if _won(mover | disc):
        return _WIN + depth - 1
    return -_negamax(other, mover | disc, depth - 1, -_WIN * 2, -worst, _balance(other, mover | disc))


def _drops(taken: int) -> Iterator[tuple[int, int]]:
    """Yield every column that is not full, with the cell (as a bit) that a disc would take."""
    landing = (taken + _BOTTOM) & _CELLS
    for column in _MIDDLE_FIRST:
        if disc := landing & _COLUMN_CELLS[column]:
            yield column, disc


def _negamax(mover: int, other: int, depth: int, worst: int, best: int, balance: int) -> int:
    """Return the score for the player to move; earlier wins and later losses are better. The other has not won.

    ``balance`` is ``_balance(mover, other)``: each disc changes it by its weight, so that it is not counted at every leaf.
    """
    landing = (mover | other) + _BOTTOM & _CELLS
    if not depth:
        return balance
    if not landing:
        return 0
    if _completing(mover) & landing:
        return _WIN + depth - 1
    if depth == 1:
        return balance + next(weight for weight, group in _HEAVIEST_FIRST if group & landing)
    if threats := _completing(other) & landing:
        if threats & threats - 1:  # only one of them can be taken
            return 2 - _WIN - depth
        landing = threats
    for column in _COLUMNS_MIDDLE_FIRST:
        if disc := landing & column:
            after = -balance - _WEIGHT[disc]
            worst = max(worst, -_negamax(other, mover | disc, depth - 1, -best, -worst, after))
            if worst >= best:
                break
    return worst


def _completing(cells: int) -> int:
    """Return where one more disc makes a line of four, among other bits: cells that are taken, and some off the board."""
    found = cells << 1 & cells << 2 & cells << 3
    for step in _STEPS[1:]:
        pairs = cells << step & cells << 2 * step
        found |= pairs & (cells << 3 * step | cells >> step)
        pairs = cells >> step & cells >> 2 * step
        found |= pairs & (cells >> 3 * step | cells << step)
    return found


def _won(cells: int) -> bool:
    for step in _STEPS:
        pairs = cells & cells >> step
        if pairs & pairs >> 2 * step:
            return True
    return False


def _weights() -> tuple[tuple[int, int], ...]:
    """Group the cells by the number of lines of four through them."""
    through = dict.fromkeys((cell for cell in range(_STRIDE * COLUMNS) if _CELLS >> cell & 1), 0)
    for cell in through:
        for step in _STEPS:
            line = [cell + place * step for place in range(4)]
            if all(other in through for other in line):
                for other in line:
                    through[other] += 1
    return tuple(
        (weight, sum(1 << cell for cell, lines in through.items() if lines == weight))
        for weight in sorted(set(through.values()))
    )


_WEIGHTS = _weights()
_HEAVIEST_FIRST = _WEIGHTS[::-1]
_WEIGHT = {1 << cell: weight for weight, group in _WEIGHTS for cell in range(_STRIDE * COLUMNS) if group >> cell & 1}
"""The weight of each cell."""


def _balance(mover: int, other: int) -> int:
    """Return the lines of four through the mover's cells minus those through the other's: the middle is worth most."""
    return sum(weight * ((mover & group).bit_count() - (other & group).bit_count()) for weight, group in _WEIGHTS)
