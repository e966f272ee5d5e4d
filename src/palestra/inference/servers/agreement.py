"""Notices an engine that samples from other weights than the learner has.

A server can accept new weights and keep some of the old ones: vLLM 0.32 on a CPU keeps the output head of a model whose
embeddings are tied. Nothing fails then, and the run learns from samples of another policy than the one it trains.
"""

from collections.abc import Callable

__all__ = ["SamplerWatch"]

_ARITHMETIC = 1e-3
"""Nats per token that different arithmetic may explain."""
_RISE = 20.0
"""How many times the value of the first step is too much. That value counts up to ``_ARITHMETIC``: a run that resumes may have
the fault in its first step."""
_STEPS = 2
"""In how many steps in a row. The fault stays, while a single odd token is gone in the next step."""


class SamplerWatch:
    """Compares the KL between engine and learner with that of the first step since the start."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._first: float | None = None
        self._high = 0

    def look(self, kl: float | None, *, stale: bool) -> None:
        """Warn once if the KL between engine and learner is too high, in nats per token; ``None`` if it was not measured.

        Tokens of earlier versions differ anyway, so steps that are ``stale`` are left out.
        """
        if kl is None or stale or self._high == _STEPS:
            return
        self._first = kl if self._first is None else self._first
        too_high = kl > max(_ARITHMETIC, _RISE * min(self._first, _ARITHMETIC))
        self._high = self._high + 1 if too_high else 0
        if self._high == _STEPS:
            self._say(
                "warning: the engine seems to sample from other weights than the learner has. The KL between them was "
                f"{self._first:.1e} nats per token in the first step since the start, and is {kl:.1e} now. If servers sample, "
                "they may keep some of the old weights: look for warnings in their logs"
            )
