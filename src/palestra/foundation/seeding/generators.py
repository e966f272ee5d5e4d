"""A NumPy generator that starts from a digest.

``seeding`` imports this module when the first generator is made: NumPy's random module is slow to import.
"""

import hashlib
import sys
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISpawnableSeedSequence

__all__ = ["STATE_BYTES", "generator"]

STATE_BYTES = 32
"""The size of a digest: state and stream of a PCG64."""


def generator(digest: bytes) -> np.random.Generator:
    """Return the generator whose start state is ``digest``."""
    return np.random.Generator(np.random.PCG64(_StartState(digest)))  # type: ignore[arg-type]  # any ISeedSequence will do, says NumPy's manual


class _StartState(ISpawnableSeedSequence):
    """The start state of a bit generator: a digest, extended by further digests if more words are needed."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest
        self._children = 0

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> "np.ndarray[Any, np.dtype[Any]]":
        data = self._digest
        words = np.frombuffer(data, dtype)
        while len(words) < n_words:
            data += hashlib.blake2b(data).digest()
            words = np.frombuffer(data, dtype)
        if sys.byteorder == "big":
            words = words.byteswap()
        return words if len(words) == n_words else words[:n_words]

    def spawn(self, n_children: int) -> "list[_StartState]":
        first, self._children = self._children, self._children + n_children
        return [self._child(number) for number in range(first, self._children)]

    def _child(self, number: int) -> "_StartState":
        content = b"%db%d:%b" % (number, len(self._digest), self._digest)
        return _StartState(hashlib.blake2b(content, digest_size=STATE_BYTES).digest())
