"""Independent random generators, derived from a seed and a path of names.

Palestra never uses a global generator. Code that needs randomness derives its own generator from its purpose::

    derive(run_seed, "episode", task.key, group, member, attempt)

Different paths give independent streams. The same path gives the same stream in every process, on every machine and under
every ``PYTHONHASHSEED``, because the path is hashed with BLAKE2b and not with ``hash()``.

Every episode makes a generator, so it must be cheap. NumPy turns a seed into a start state with its own hash, which costs more
than everything else that a light game does at its start. BLAKE2b has mixed the path already: its digest *is* the start state.
"""

import hashlib
import os
import sys
from typing import TYPE_CHECKING

from palestra.foundation.imports import import_uninterrupted

if TYPE_CHECKING:
    import numpy as np

__all__ = ["PathPart", "derive", "derive_seed", "fresh_seed"]

PathPart = str | bytes | int | None

# Seeds stay below 2**53, so that every JSON reader keeps them exact, JavaScript's included.
_SEED_BITS = 53

_GENERATORS = "palestra.foundation.seeding.generators"

_KINDS = {str: b"s", bytes: b"b", int: b"i"}


def derive(seed: int, *path: PathPart) -> "np.random.Generator":
    """Return the generator of ``path`` under ``seed``."""
    if _GENERATORS not in sys.modules:  # numpy.random takes a tenth of the time of "import palestra"
        import_uninterrupted(_GENERATORS)
    from palestra.foundation.seeding.generators import STATE_BYTES, generator

    return generator(_digest(seed, path, STATE_BYTES))


def derive_seed(seed: int, *path: PathPart) -> int:
    """Return the non-negative integer below 2**53 of ``path`` under ``seed``."""
    return int.from_bytes(_digest(seed, path, 16)[:8], "little") >> (64 - _SEED_BITS)


def fresh_seed() -> int:
    """Return a seed from the operating system, for callers that pass none. The task records it, so the run can be repeated."""
    return int.from_bytes(os.urandom(7), "little") >> (56 - _SEED_BITS)


def _digest(seed: int, path: tuple[PathPart, ...], size: int) -> bytes:
    # Each part is hashed with its type and length, so ("ab", "c") and ("a", "bc"), or 1 and "1", never collide.
    content = b"%d" % seed
    for part in path:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        content += b"%b%d:%b" % (_KINDS.get(type(part)) or type(part).__name__[:1].encode(), len(data), data)
    return hashlib.blake2b(content, digest_size=size).digest()
