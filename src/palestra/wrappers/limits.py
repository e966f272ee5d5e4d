"""Wrappers that cut an episode short: as truncated, with the reason, never silently."""

from collections.abc import Callable
from typing import Any

from palestra.adapters import Wrapper
from palestra.adapters.limited import TurnLimit, cut
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.trajectory import Content, StopReason, Task, text_of

__all__ = ["TokenLimit", "TurnLimit", "approximate_tokens"]


def approximate_tokens(text: str) -> int:
    """About how many tokens ``text`` has: a quarter of its bytes. Pass a tokenizer's own count where it matters."""
    return -(-len(text.encode("utf-8", "replace")) // 4)


class TokenLimit(Wrapper):
    """Truncates once observations and actions together hold more than ``tokens`` tokens, as ``count`` counts them."""

    shared = ("_count",)

    def __init__(self, env: AsyncEnv, tokens: int, count: Callable[[str], int] = approximate_tokens) -> None:
        super().__init__(env)
        if tokens < 1:
            raise UsageError(f"tokens must be at least 1, got {tokens}")
        self.tokens = tokens
        self._count = count
        self._used = 0

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        observation, info = await self.env.reset(seed=seed, task=task)
        self._used = self._count(text_of(observation))
        return observation, info

    async def step(self, action: str) -> Step:
        step = Step(*await self.env.step(action))
        self._used += self._count(action) + self._count(text_of(step.observation))
        return cut(step, StopReason.TOKEN_LIMIT) if self._used > self.tokens else step
