"""Independent random generators, derived from a seed and a path of names.

Nothing in Palestra touches a global generator. Whoever needs randomness derives its own from what it is *for*::

    derive(run_seed, "episode", task.key, group, member, attempt)

Two different paths give independent streams; the same path gives the same stream in every process, on every machine and
under every ``PYTHONHASHSEED``, because the path is hashed with BLAKE2b and not with ``hash()``.
"""

import hashlib
import secrets

import numpy as np

__all__ = ["PathPart", "derive", "derive_seed", "fresh_seed"]

PathPart = str | bytes | int | None

# Seeds are kept below 2**53 so that they survive every JSON reader, JavaScript's included.
_SEED_BITS = 53


def derive(seed: int, *path: PathPart) -> np.random.Generator:
    """A generator that belongs to ``path`` under ``seed`` and to nothing else."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(_digest(seed, path), "little")))


def derive_seed(seed: int, *path: PathPart) -> int:
    """A non-negative integer below 2**53 that belongs to ``path`` under ``seed``."""
    return int.from_bytes(_digest(seed, path)[:8], "little") >> (64 - _SEED_BITS)


def fresh_seed() -> int:
    """A seed from the operating system, for callers who gave none. It is recorded in the task, so the run can be repeated."""
    return secrets.randbits(_SEED_BITS)


def _digest(seed: int, path: tuple[PathPart, ...]) -> bytes:
    # Each part carries its type and its length, so ("ab", "c") and ("a", "bc"), or 1 and "1", never collide.
    hasher = hashlib.blake2b(str(seed).encode(), digest_size=16)
    for part in path:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        hasher.update(b"%c%d:" % (type(part).__name__[0].encode(), len(data)))
        hasher.update(data)
    return hasher.digest()
