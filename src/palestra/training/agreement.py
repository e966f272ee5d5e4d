"""Notices an engine that samples from other weights than the learner has.

A server can accept new weights and keep some of the old ones: vLLM 0.32 on a CPU keeps the output head of a model whose
embeddings are tied. Nothing fails then, and the run learns from samples of another policy than the one it trains.
"""

from collections.abc import Callable

from palestra.training.experience import Experience

__all__ = ["SamplerWatch"]

_LEAST = 1e-3
"""Nats per token that different arithmetic may explain."""
_RISE = 20.0
"""How many times the value of the first step is too much."""


class SamplerWatch:
    """Compares the KL between engine and learner with that of the first step, before which nothing was updated."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._first: float | None = None
        self._warned = False

    def look(self, experience: Experience) -> None:
        """Warn once if the KL has risen. Tokens of earlier versions differ anyway, so steps with such tokens are left out."""
        kl = experience.measured.get("sampler/kl")
        if kl is None or experience.staleness or self._warned:
            return
        if self._first is None:
            self._first = kl
        elif kl > max(_LEAST, _RISE * self._first):
            self._warned = True
            self._say(
                "warning: the engine samples from other weights than the learner has. The KL between them was "
                f"{self._first:.1e} nats per token in the first step since the start, and is {kl:.1e} now. If servers sample, "
                "they may keep some of the old weights: look for warnings in their logs"
            )
