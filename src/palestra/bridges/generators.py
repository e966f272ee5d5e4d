"""The global random generators of Python and NumPy, for environments of other packages that draw from them."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

__all__ = ["GlobalGenerators"]


class GlobalGenerators:
    """What the global generators are for one environment. Everything outside of its calls keeps its own random numbers.

    Two environments of one thread do not disturb each other. Two threads do, because the generators are global: environments
    that use this class declare ``blocking = True``, and rollouts play each of them in a worker process.
    """

    def __init__(self) -> None:
        self._kept: tuple[Any, Any] | None = None

    @contextmanager
    def own(self, seed: int | None = None) -> Iterator[None]:
        """Put the generators of this environment in place, with ``seed`` if one is given, and take them away afterwards."""
        outside = random.getstate(), np.random.get_state()
        _place(self._kept)
        if seed is not None:
            _sow(seed)
        try:
            yield
        finally:
            self._kept = random.getstate(), np.random.get_state()
            _place(outside)

    @contextmanager
    def borrowed(self, seed: int) -> Iterator[None]:
        """Run a block with generators that ``seed`` fixes, without an effect on the environment's own."""
        outside = random.getstate(), np.random.get_state()
        _sow(seed)
        try:
            yield
        finally:
            _place(outside)


def _place(states: tuple[Any, Any] | None) -> None:
    if states is not None:
        random.setstate(states[0])
        np.random.set_state(states[1])


def _sow(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)
