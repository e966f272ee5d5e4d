"""Coefficients of the entropy bonus that change during a run: by a schedule, or by the entropy itself."""

from typing import Annotated

import msgspec

__all__ = ["Anneal", "EntropyTarget"]


class Anneal(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A coefficient that goes linearly from ``start`` to ``stop`` over ``steps`` steps, and stays at ``stop``."""

    start: float
    stop: float = 0.0
    steps: Annotated[int, msgspec.Meta(ge=1)] = 100

    def at(self, step: int) -> float:
        """The coefficient of ``step``."""
        return self.start + (self.stop - self.start) * min(step / self.steps, 1.0)


class EntropyTarget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An entropy coefficient that follows the entropy of the policy."""

    target: Annotated[float, msgspec.Meta(gt=0.0)]
    """The entropy to keep, in nats per token."""
    start: Annotated[float, msgspec.Meta(ge=0.0)] = 0.0
    """The coefficient of the first step."""
    rate: Annotated[float, msgspec.Meta(gt=0.0)] = 0.005
    """How much the coefficient rises after a step whose entropy was below the target, and falls after one above it."""
    largest: Annotated[float, msgspec.Meta(gt=0.0)] = 0.1
    """The largest coefficient. The smallest is 0."""

    def after(self, coefficient: float, entropy: float) -> float:
        """The coefficient of the next step."""
        moved = coefficient + (self.rate if entropy < self.target else -self.rate)
        return min(max(moved, 0.0), self.largest)
