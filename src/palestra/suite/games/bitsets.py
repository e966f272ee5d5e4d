"""Sets of cells as integers, one bit per cell: union, difference and count are single operations."""

from collections.abc import Iterator

__all__ = ["bits"]


def bits(cells: int) -> Iterator[int]:
    """Yield the cells of a set, in ascending order."""
    while cells:
        lowest = cells & -cells
        yield lowest.bit_length() - 1
        cells ^= lowest
