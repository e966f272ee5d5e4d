"""The mathematics of Minesweeper: fields, openings, and what follows without guessing.

A set of cells is an integer, one bit per cell, so a field of 8×8 is solved in a fraction of a millisecond.
"""

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from palestra.suite.games.bitsets import bits

__all__ = ["Conclusion", "conclude", "least_risky", "neighbors", "opening", "solvable"]


class Conclusion(NamedTuple):
    """What follows from an open field."""

    safe: int
    mines: int


@cache
def neighbors(rows: int, columns: int) -> tuple[int, ...]:
    """Return, for every cell, the set of the cells around it."""
    return tuple(
        sum(
            1 << (r * columns + c)
            for r in range(max(row - 1, 0), min(row + 2, rows))
            for c in range(max(column - 1, 0), min(column + 2, columns))
            if (r, c) != (row, column)
        )
        for row in range(rows)
        for column in range(columns)
    )


def opening(near: tuple[int, ...], mines: int, cell: int, closed: int) -> int:
    """Return the cells that a reveal of ``cell`` opens: itself, and all around a cell that touches no mine."""
    opened, queue = 1 << cell, [cell]
    while queue:
        around = near[queue.pop()]
        if not around & mines:
            fresh = around & closed & ~opened
            opened |= fresh
            queue.extend(bits(fresh))
    return opened


def conclude(near: tuple[int, ...], mines: int, opened: int, closed: int) -> Conclusion:
    """Return the closed cells that are certainly safe or mined, as far as any two numbers (or the total) determine it.

    ``mines`` is used only for the numbers on open cells and for the total, never for the positions of mines.
    """
    safe = known = 0
    while True:
        unknown = closed & ~safe & ~known
        rules = _rules(near, mines, opened, unknown, known)
        more = _single(rules)
        if not (more.safe | more.mines):
            more = _pairs(rules)
        if not (more.safe | more.mines):
            return Conclusion(safe, known)
        safe |= more.safe
        known |= more.mines


def _rules(near: tuple[int, ...], mines: int, opened: int, unknown: int, known: int) -> list[tuple[int, int]]:
    """Return sets of unknown cells with their number of mines: one per open number, and one for the whole field."""
    rules = {unknown: mines.bit_count() - known.bit_count()} if unknown else {}
    for cell in bits(opened):
        around = near[cell] & unknown
        if around:
            rules[around] = (near[cell] & mines).bit_count() - (near[cell] & known).bit_count()
    return list(rules.items())


def _single(rules: Iterable[tuple[int, int]]) -> Conclusion:
    safe = mines = 0
    for cells, count in rules:
        if count == 0:
            safe |= cells
        elif count == cells.bit_count():
            mines |= cells
    return Conclusion(safe, mines)


def _pairs(rules: list[tuple[int, int]]) -> Conclusion:
    # If the difference in mines between two rules equals the number of cells that only the first has, all of these are
    # mines, and the cells that only the other has are safe.
    safe = mines = 0
    for cells, count in rules:
        for others, others_count in rules:
            alone = cells & ~others
            if cells != others and count - others_count == alone.bit_count():
                mines |= alone
                safe |= others & ~cells
    return Conclusion(safe, mines)


def least_risky(near: tuple[int, ...], mines: int, opened: int, closed: int) -> int:
    """Return the closed cell to try when nothing is certain: the one whose worst rule gives it the smallest risk."""
    known = conclude(near, mines, opened, closed).mines
    unknown = closed & ~known
    rules = _rules(near, mines, opened, unknown, known)
    return min(bits(unknown), key=lambda cell: max(count / cells.bit_count() for cells, count in rules if cells >> cell & 1))


def solvable(near: tuple[int, ...], mines: int, first: int) -> bool:
    """Return whether a player who opens ``first`` can open every safe cell without guessing."""
    everything = (1 << len(near)) - 1
    opened = opening(near, mines, first, everything)
    while opened | mines != everything:
        safe = conclude(near, mines, opened, everything & ~opened).safe
        if not safe:
            return False
        for cell in bits(safe):
            if not opened >> cell & 1:
                opened |= opening(near, mines, cell, everything & ~opened)
    return True
