"""Boards as text: one line per row, with row and column numbers if moves are written with them."""

from collections.abc import Sequence
from functools import cache

__all__ = ["grid", "numbered_grid"]


def grid(marks: Sequence[str], columns: int, between: str = " ") -> str:
    """Return ``marks`` row by row, with ``between`` between the marks of a row."""
    return "\n".join([between.join(marks[start : start + columns]) for start in range(0, len(marks), columns)])


def numbered_grid(marks: Sequence[str], columns: int, width: int = 1) -> str:
    """Return the same with rows and columns counted from 0; a mark is ``width`` characters wide, one or three."""
    head, numbers = _numbers(columns, len(marks) // columns, width)
    between = "  " if width == 1 else " "
    rows = [number + between.join(marks[row * columns : (row + 1) * columns]) for row, number in enumerate(numbers)]
    return "\n".join([head, *rows])


@cache
def _numbers(columns: int, rows: int, width: int) -> tuple[str, tuple[str, ...]]:
    """Return the line above a grid, and the start of each line."""
    if width == 1:
        return "    " + " ".join([f"{column:2}" for column in range(columns)]), tuple(f"{row:2}   " for row in range(rows))
    return "    " + " ".join([f"{column:^3}" for column in range(columns)]), tuple(f"{row:2}  " for row in range(rows))
