"""A plain environment around another one, which receives everything that a subclass does not change."""

from typing import Any

from palestra.core import AsyncEnv, Env, Step
from palestra.trajectory import Content, Task

__all__ = ["Passing"]


class Passing(Env):
    """Passes every verb and every attribute on to ``env``."""

    def __init__(self, env: Env) -> None:
        self.env = env

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        return self.env.reset(seed=seed, task=task)

    def step(self, action: str) -> Step:
        return self.env.step(action)

    def close(self) -> None:
        self.env.close()

    def oracle(self) -> str:
        return self.env.oracle()

    def sample_random_action(self) -> str:
        return self.env.sample_random_action()

    def seed_actions(self, seed: int) -> None:
        self.env.seed_actions(seed)

    @property
    def unwrapped(self) -> Env | AsyncEnv:
        return self.env.unwrapped

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # half built
            raise AttributeError(name)
        return getattr(self.env, name)
