"""Tic-tac-toe against an opponent of adjustable skill; optimal play is known exactly."""

from functools import cache

from palestra.suite.games.bitsets import bits
from palestra.suite.games.duel import Duel
from palestra.suite.games.game import boxed

__all__ = ["TicTacToe"]

_ROWS = (0b111, 0b111000, 0b111000000)
_COLUMNS = (0b001001001, 0b010010010, 0b100100100)
_DIAGONALS = (0b100010001, 0b001010100)
_LINES = (*_ROWS, *_COLUMNS, *_DIAGONALS)
_FULL = 0b111111111


class TicTacToe(Duel):
    """Three in a row. The cells are numbered from 1 to 9, row by row.

    ``skill`` is the probability that the opponent makes a perfect move; if it is ``None``, each task draws it. The oracle
    knows the skill and maximizes its expected score. Against a perfect opponent it draws. Of 100 tasks it won 94 at skill 0
    and 33 at skill 0.8.
    """

    most_turns = 9

    def __init__(self, skill: float | None = 0.8) -> None:
        super().__init__(skill)

    @property
    def ceiling(self) -> float:
        # Exact: the best score against each skill, averaged over the two possible first players.
        scores = [(_best_score(0, 0, skill) + _score_after(0, 0, skill)) / 2 for skill in self._skills]
        return sum(scores) / len(scores)

    def rules(self) -> str:
        return (
            "You are playing tic-tac-toe against an opponent.\n"
            "You are X, the opponent is O. Whoever gets three in a row, column or diagonal first wins. The opponent answers "
            "each of your moves.\n"
            f"Think as long as you like, then give the number of a free cell inside \\boxed{{}}, for example {boxed(5)}."
        )

    def view(self) -> str:
        marks = [self.mark(cell, str(cell + 1)) for cell in range(9)]
        return "The board:\n" + "\n".join(" | ".join(marks[start : start + 3]) for start in (0, 3, 6))

    def legal(self) -> list[int]:
        return [cell + 1 for cell in bits(_FULL & ~self.mine & ~self.theirs)]

    def cell(self, move: int) -> int:
        return move - 1

    def won(self, cells: int) -> bool:
        return _won(cells)

    def good_replies(self) -> list[int]:
        return [cell + 1 for cell in _perfect(self.theirs, self.mine)]

    def oracle(self) -> str:
        free = bits(_FULL & ~self.mine & ~self.theirs)
        return boxed(max(free, key=lambda cell: _score_after(self.mine | 1 << cell, self.theirs, self.skill)) + 1)

    def constant_answers(self) -> list[str]:
        return [boxed(5)]


def _won(cells: int) -> bool:
    return any(cells & line == line for line in _LINES)


@cache
def _outcome(mover: int, other: int) -> int:
    """Return the outcome for the player to move against perfect play: 1 a win, 0 a draw, -1 a loss."""
    if _won(other):
        return -1
    free = _FULL & ~mover & ~other
    return max((-_outcome(other, mover | 1 << cell) for cell in bits(free)), default=0)


@cache
def _perfect(mover: int, other: int) -> tuple[int, ...]:
    """Return all moves with the best outcome."""
    free = list(bits(_FULL & ~mover & ~other))
    best = _outcome(mover, other)
    return tuple(cell for cell in free if -_outcome(other, mover | 1 << cell) == best)


@cache
def _score_after(mine: int, theirs: int, skill: float) -> float:
    """Return the mean score of optimal play, with the opponent to move."""
    if _won(mine):
        return 1.0
    free = list(bits(_FULL & ~mine & ~theirs))
    if not free:
        return 0.5
    scores = {cell: _best_score(mine, theirs | 1 << cell, skill) for cell in free}
    perfect = _perfect(theirs, mine)
    clever = sum(scores[cell] for cell in perfect) / len(perfect)
    return skill * clever + (1 - skill) * sum(scores.values()) / len(scores)


def _best_score(mine: int, theirs: int, skill: float) -> float:
    if _won(theirs):
        return 0.0
    free = bits(_FULL & ~mine & ~theirs)
    return max((_score_after(mine | 1 << cell, theirs, skill) for cell in free), default=0.5)
