"""Several attempts at one task in one episode: what reflection needs, and what pass@k measures from outside.

When an attempt ends without success, the environment starts the same task again, and the observation holds the end of the
failed attempt, a line that says so, and the first observation of the next attempt. ``split_attempts`` takes such an observation
apart.
"""

import re
from typing import Any, NamedTuple

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.trajectory import Content, Part, Task, Text, text_of

__all__ = ["ATTEMPTS", "AttemptBoundary", "Attempts", "split_attempts"]

ATTEMPTS = 3
"""Attempts in one episode by default."""

_LINE = "[Attempt {} of {} ended without success. The same task begins again.]"
_LINE_PATTERN = re.compile(r"\n\n\[Attempt (\d+) of \d+ ended without success\. The same task begins again\.\]\n\n")


class AttemptBoundary(NamedTuple):
    """An observation between two attempts."""

    outcome: str
    """The last observation of the failed attempt."""
    attempt: int
    """The number of the failed attempt, from 1."""
    start: Content
    """The first observation of the next attempt."""


def split_attempts(observation: Content) -> AttemptBoundary | None:
    """Return the parts of an observation between two attempts; ``None`` for any other observation."""
    if isinstance(observation, str):
        line = _LINE_PATTERN.search(observation)
        if line is None:
            return None
        return AttemptBoundary(observation[: line.start()], int(line[1]), observation[line.end() :])
    for index, part in enumerate(observation):
        if isinstance(part, Text) and (line := _LINE_PATTERN.fullmatch(part.text)):
            return AttemptBoundary(text_of(observation[:index]), int(line[1]), observation[index + 1 :])
    return None


class Attempts(Wrapper):
    """Plays the same task again after a failure, up to ``n`` attempts in one episode.

    An attempt fails if it is truncated, or if it ends with ``info["success"]`` false. The episode's reward is that of its last
    attempt: a failed attempt pays nothing, so its last step takes back what the attempt has paid. ``info["metrics"]`` of the
    last step has the number of attempts. The player learns that an attempt failed, so compare scores only with scores of the
    same number of attempts.

    Args:
        env: The environment.
        n: The largest number of attempts.
    """

    def __init__(self, env: AsyncEnv, n: int = ATTEMPTS) -> None:
        super().__init__(env)
        if n < 1:
            raise UsageError(f"n must be at least 1 attempt, got {n}")
        self.n = n
        self._attempt = 1
        self._paid = 0.0
        self._task: Task | None = None

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        observation, info = await self.env.reset(seed=seed, task=task)
        self._attempt, self._paid, self._task = 1, 0.0, task or self.env.task
        # The limit of one attempt is not that of the episode.
        return observation, {key: value for key, value in info.items() if key != "max_turns"}

    async def step(self, action: str) -> Step:
        step = Step(*await self.env.step(action))
        if not (step.terminated or step.truncated):
            self._paid += step.reward
            return step
        if self._attempt == self.n or not (step.truncated or step.info.get("success") is False):
            metrics = {**step.info.get("metrics", {}), "attempts": self._attempt}
            return step._replace(info={**step.info, "metrics": metrics})
        line = f"\n\n{_LINE.format(self._attempt, self.n)}\n\n"
        again, info = await self.env.reset(task=self._task)
        reward, self._paid = -self._paid, 0.0
        self._attempt += 1
        kept = {key: value for key, value in info.items() if key not in ("max_turns", "opening", "success")}
        return Step(_joined(step.observation, line, again), reward, False, False, kept)


def _joined(before: Content, line: str, after: Content) -> Content:
    if isinstance(before, str) and isinstance(after, str):
        return f"{before}{line}{after}"
    return (*_parts(before), Text(line), *_parts(after))


def _parts(content: Content) -> tuple[Part, ...]:
    return (Text(content),) if isinstance(content, str) else content
