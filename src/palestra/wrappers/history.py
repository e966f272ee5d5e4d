"""History inside the observation, for policies that see one text at a time."""

from collections import deque
from typing import Any

from palestra.adapters import Wrapper
from palestra.core import AsyncEnv, Step
from palestra.errors import UsageError
from palestra.trajectory import Content, Part, Task, Text

__all__ = ["KeepHistory"]


class KeepHistory(Wrapper):
    """Shows the task statement, the last ``turns`` exchanges, and then the current observation.

    The first observation states the task, so it is always shown. A note replaces the turns outside the window.

    Args:
        env: The environment.
        turns: The number of exchanges to show; ``None`` shows all.
    """

    def __init__(self, env: AsyncEnv, turns: int | None = None) -> None:
        super().__init__(env)
        if turns is not None and turns < 0:
            raise UsageError(f"turns must not be negative, got {turns}")
        self._task: Content = ""
        self._dropped = 0
        self._exchanges: deque[tuple[str, Content]] = deque()
        self.turns = turns

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        self._task, info = await self.env.reset(seed=seed, task=task)
        self._exchanges.clear()
        self._dropped = 0
        return self._task, info

    async def step(self, action: str) -> Step:
        step = Step(*await self.env.step(action))
        self._exchanges.append((action, step.observation))
        # The latest exchange is the present, not history, so it is always shown.
        while self.turns is not None and len(self._exchanges) > self.turns + 1:
            self._exchanges.popleft()
            self._dropped += 1
        # The whole conversation in one text is no tool's result, even if a result is the latest part of it.
        info = {key: value for key, value in step.info.items() if key != "role"}
        return step._replace(observation=self._shown(), info=info)

    def _shown(self) -> Content:
        parts: list[Part] = list(_parts(self._task))
        if self._dropped:
            parts.append(Text(f"\n\n[{self._dropped} earlier turn{'s' * (self._dropped > 1)} not shown]"))
        for action, observation in self._exchanges:
            parts += [Text(f"\n\nYou: {action}\n\n"), *_parts(observation)]
        if all(isinstance(part, Text) for part in parts):
            return "".join(part.text for part in parts if isinstance(part, Text))
        return tuple(parts)


def _parts(content: Content) -> tuple[Part, ...]:
    return (Text(content),) if isinstance(content, str) else content
