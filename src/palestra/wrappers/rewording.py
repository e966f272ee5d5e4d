r"""The same game in fewer words, for models to which every token is dear.

Reword(env, move="Guess: {}", observations={r".*(higher|lower) than (\d+).*": r"The number is \1 than \2."})
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from palestra.core import AsyncEnv, Wrapper
from palestra.errors import UsageError
from palestra.grading.extract import last_boxed
from palestra.trajectory import Content

__all__ = ["Reword", "Wording"]


class Reword(Wrapper):
    r"""Says what the environment says in other words, and lets moves be written without ``\boxed{}``.

    ``observations`` are regular expressions and what stands for them; the first that matches the whole text replaces it, and a
    text that none matches stays as it is. ``move`` shows how a move is written, ``{}`` standing for what would be in the box;
    anything else reaches the environment as it was written.
    """

    def __init__(self, env: AsyncEnv, *, move: str = "", observations: Mapping[str, str] | None = None) -> None:
        super().__init__(env)
        if move and move.count("{}") != 1:
            raise UsageError(f'move shows where the move itself stands by one {{}}, as in "Guess: {{}}"; got "{move}"')
        self._move = move
        before, _, after = move.partition("{}")
        self._written = re.compile(rf"{re.escape(before)}(.+?){re.escape(after)}\s*", re.DOTALL)
        self._observations = [(re.compile(old, re.DOTALL), new) for old, new in (observations or {}).items()]

    def observation(self, observation: Content) -> Content:
        if not isinstance(observation, str):
            return observation
        for old, new in self._observations:
            if found := old.fullmatch(observation):
                return found.expand(new)
        return observation

    def action(self, action: str) -> str:
        found = self._written.fullmatch(action) if self._move else None
        return f"\\boxed{{{found[1]}}}" if found else action

    async def oracle(self) -> str:
        return self._reworded(await self.env.oracle())

    async def sample_random_action(self) -> str:
        return self._reworded(await self.env.sample_random_action())

    def _reworded(self, move: str) -> str:
        inside = last_boxed(move) if self._move else None
        return move if inside is None else self._move.format(inside)


@dataclass(frozen=True)
class Wording:
    """``Reword`` with its options, as a wrapper for a registration: two with the same options are the same."""

    move: str = ""
    observations: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, env: AsyncEnv) -> Reword:
        return Reword(env, move=self.move, observations=self.observations)
