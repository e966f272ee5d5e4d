"""Batches of a given shape, and the memory of this process: for tests and benchmarks of a learner's memory."""

from pathlib import Path

import numpy as np

from palestra.foundation.encoding import ints
from palestra.training.learner.batch import Batch
from palestra.training.learner.planning import MicroBatchShape

__all__ = ["memory", "of_shape", "restart_high_water_mark"]


def of_shape(shape: MicroBatchShape, vocabulary: int, micro_batches: int = 1) -> Batch:
    """Return micro-batches of this shape, with random ids and advantages."""
    rng = np.random.default_rng(0)
    segments, length, sampled = micro_batches * shape.segments, shape.length, shape.sampled
    shown = rng.integers(0, vocabulary, shape.prefix).tolist()
    total = segments * sampled
    expected = np.full(total, -np.log(vocabulary))
    return Batch(
        ids=tuple(ints(shown + rng.integers(0, vocabulary, length - shape.prefix).tolist()) for _ in range(segments)),
        owners=np.arange(segments),
        count=segments,
        segments=np.repeat(np.arange(segments), sampled),
        positions=np.tile(np.arange(length - sampled, length), segments),
        turns=np.zeros(total, dtype=np.int64),
        sampled=expected,
        old=expected,
        advantages=rng.normal(size=total),
    )


def memory(key: str) -> int:
    """Return a line of ``/proc/self/status`` in bytes: ``VmRSS``, or ``VmHWM`` for the high-water mark."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def restart_high_water_mark() -> None:
    """Let the high-water mark begin at what is used now."""
    Path("/proc/self/clear_refs").write_text("5")
