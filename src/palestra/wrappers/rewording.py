r"""The same environment in fewer words, for models with a short context.

Reword(env, move="Guess: {}", observations={r".*(higher|lower) than (\d+).*": r"The number is \1 than \2."})
"""

import re
from collections.abc import Mapping

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv
from palestra.errors import UsageError
from palestra.grading.extract import last_boxed
from palestra.trajectory import Content

__all__ = ["Reword"]


class Reword(Wrapper):
    r"""Rewrites observations, and accepts moves without ``\boxed{}``.

    Args:
        env: The environment.
        move: The form of a move, with ``{}`` in place of the content of the box, as in ``"Guess: {}"``. An action of another
            form reaches the environment unchanged.
        observations: Regular expression → replacement. The first expression that matches a whole observation rewrites it; an
            observation that none matches stays as it is.
    """

    def __init__(self, env: AsyncEnv, *, move: str = "", observations: Mapping[str, str] | None = None) -> None:
        super().__init__(env)
        if move and move.count("{}") != 1:
            raise UsageError(f'move must contain {{}} once, as in "Guess: {{}}"; got "{move}"')
        self._move = move
        before, _, after = move.partition("{}")
        self._written = re.compile(rf"{re.escape(before)}(.+?){re.escape(after)}\s*", re.DOTALL)
        self._observations = [(re.compile(old, re.DOTALL), new) for old, new in (observations or {}).items()]

    def observation(self, observation: Content) -> Content:
        if not isinstance(observation, str):
            return observation
        for old, new in self._observations:
            if match := old.fullmatch(observation):
                return match.expand(new)
        return observation

    def action(self, action: str) -> str:
        match = self._written.fullmatch(action) if self._move else None
        return f"\\boxed{{{match[1]}}}" if match else action

    async def oracle(self) -> str:
        return self._reworded(await self.env.oracle())

    async def sample_random_action(self) -> str:
        return self._reworded(await self.env.sample_random_action())

    def _reworded(self, move: str) -> str:
        inside = last_boxed(move) if self._move else None
        return move if inside is None else self._move.format(inside)
