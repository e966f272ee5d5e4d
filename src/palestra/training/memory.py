"""The memory of a learner's ranks, from what its parts take. The dry run and ``palestra plan`` both compute with it.

Nothing here needs torch: ``estimate`` fills in what the passes take.
"""

import msgspec

__all__ = ["FLOAT", "MOMENTS", "RankMemory", "in_bytes"]

FLOAT = 4
"""Bytes of a weight and of a gradient, whatever type the arithmetic has."""
MOMENTS = 2
"""Values that AdamW keeps per trained parameter, in float32."""
_SHARDED = ("weights", "gradients", "optimizer", "reference")


class RankMemory(msgspec.Struct, frozen=True):
    """Bytes of a learner."""

    parts: dict[str, float]
    """Of a learner with one rank, by purpose."""
    source: str
    """Where the number of parameters comes from."""
    passes: float | None = None
    """Bytes of the largest pass; ``None`` if it is not known."""
    sharded: float | None = None
    """The same bytes if the parameters are sharded over ranks, and ranks divide micro-batches as configured."""
    gathered: float = 0.0
    """Bytes that sharding adds to each rank."""
    divided: int = 1
    """The number of ranks that divide a micro-batch."""

    @classmethod
    def by_size(cls, parameters: float) -> "RankMemory":
        """Return the memory of a learner that trains all of ``parameters``, without its passes."""
        weights = parameters * FLOAT
        return cls({"weights": weights, "gradients": weights, "optimizer": weights * MOMENTS}, "by its size")

    def on_each_of(self, ranks: int) -> float:
        """Return the learner's peak memory per rank. Parameters are sharded over ranks. The memory of a pass is not, unless
        ranks divide micro-batches.
        """
        total = sum(self.parts.values())
        if ranks == 1:
            return total
        shared = sum(self.parts.get(name, 0.0) for name in _SHARDED)
        passes = (self.sharded or 0.0) - (self.passes or 0.0)
        return total - shared + shared / ranks + passes + self.gathered

    def named_parts(self) -> str:
        """Return the parts as text, such as ``weights 32.0 GB, gradients 32.0 GB``."""
        return ", ".join(f"{name} {in_bytes(value)}" for name, value in self.parts.items())


def in_bytes(count: float) -> str:
    """Return ``count`` bytes as text in GB or MB."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"
