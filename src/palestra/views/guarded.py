"""What ``make`` hands to a user: the plain Gym object, with the contract enforced."""

from typing import Any

from palestra.core import AsyncEnv, Env, Step
from palestra.errors import EpisodeOver
from palestra.seeding import fresh_seed
from palestra.trajectory import Content, Task

__all__ = ["Guarded"]


class Guarded(Env):
    """Refuses a step before ``reset`` or after the end, closes the inner environment exactly once, and is a context manager."""

    def __init__(self, env: Env, name: str) -> None:
        self.env = env
        self.name = name
        """The id it was made under, and the ``env`` of the tasks it makes for a bare seed."""
        self._turn = 0
        self._ended = "not begun"
        self._closed = False

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        if self._closed:
            raise EpisodeOver(self._why_not())
        if task is None:
            task = Task(self.name, fresh_seed() if seed is None else seed)
        result = self.env.reset(task=task)
        self._turn, self._ended = 0, ""
        return result

    def step(self, action: str) -> Step:
        if self._ended:
            raise EpisodeOver(self._why_not())
        step = self.env.step(action)
        self._turn += 1
        if step[2] or step[3]:
            self._ended = "terminated" if step[2] else "truncated"
        return step

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._ended = "closed"
            self.env.close()

    def oracle(self) -> str:
        return self.env.oracle()

    def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    def seed_actions(self, seed: int) -> None:
        self.env.seed_actions(seed)

    def fork(self) -> "Guarded":
        twin = Guarded(self.env.fork(), self.name)
        twin._turn, twin._ended = self._turn, self._ended
        return twin

    @property
    def unwrapped(self) -> Env | AsyncEnv:
        return self.env.unwrapped

    def _why_not(self) -> str:
        if self._ended == "not begun":
            return "this episode has not begun. Call reset() first."
        if self._ended == "closed":
            return "this environment has been closed. Make a new one."
        return f"this episode ended at turn {self._turn} ({self._ended}). Call reset() first."

    def __enter__(self) -> "Guarded":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # half built
            raise AttributeError(name)
        return getattr(self.env, name)
