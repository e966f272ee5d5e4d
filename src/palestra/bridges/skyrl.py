"""Palestra's environments in SkyRL's own loop, ``SkyRLGymGenerator``. Tried with skyrl-gym 0.4.0 and skyrl 0.4.0.

SkyRL plays a reply that was cut as if it were a move. An environment that fails ends the whole batch with its error, because
SkyRL cannot record an episode without a score. ``palestra.bridges.skyrl_generator`` ends an episode at a cut, and leaves
failed episodes out of the loss: prefer it, unless a batch also has environments of SkyRL.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from palestra.bridges.leases import LentEnv, first_messages
from palestra.bridges.rows import task_of, task_text
from palestra.bridges.versions import framework
from palestra.errors import UsageError
from palestra.trajectory import Message, Task, observed, text_of

__all__ = ["metrics_of", "read_task", "register", "task_rows", "text_env"]


def task_rows(tasks: Iterable[Task], name: str = "palestra") -> list[dict[str, Any]]:
    """Return the rows of a data set for SkyRL. The prompt is the task as JSON; the environment replaces it by its own."""
    return [{"prompt": [{"role": "user", "content": task_text(task)}], "env_class": name} for task in tasks]


def read_task(prompt: Sequence[dict[str, Any]]) -> Task:
    """Return the task of a row that ``task_rows`` has made."""
    try:
        return task_of(prompt[-1]["content"])
    except (UsageError, IndexError, KeyError) as error:
        raise UsageError(
            f"the last message of a prompt must be a task of Palestra as JSON, as task_rows() writes it: {error}"
        ) from None


def register(name: str = "palestra") -> None:
    """Register all of Palestra's environments under one name of SkyRL. A second call does nothing."""
    entry = text_env()
    registration = framework("skyrl_rows", "skyrl_gym.envs.registration", "register", "registry")
    if name not in registration.registry:
        registration.register(id=name, entry_point=entry)


@cache
def text_env() -> type:
    """Return the ``BaseTextEnv`` that ``register`` registers. SkyRL's ``generator.max_turns`` limits its episodes."""
    base = framework("skyrl_rows", "skyrl_gym.envs.base_text_env", "BaseTextEnv")

    class PalestraTextEnv(base.BaseTextEnv):  # type: ignore[name-defined]
        def __init__(self, env_config: Any = None, extras: dict[str, Any] | None = None) -> None:
            super().__init__()
            self.max_turns = (extras or {}).get("max_turns")
            self._metrics: dict[str, float] = {}
            self._env: LentEnv | None = None

        def init(self, prompt: list[dict[str, Any]]) -> tuple[list[dict[str, str]], dict[str, Any]]:
            task = read_task(prompt)
            self._env = LentEnv(task.env)
            observation, info = self._env.reset(task=task)
            return [*prompt[:-1], *map(_chat, first_messages(observation, info))], info

        def step(self, action: str) -> dict[str, Any]:
            assert self._env is not None, "init() has to come first"
            observation, reward, terminated, truncated, info = self._env.step(action)
            self.turns += 1
            self._metrics = metrics_of(self.turns, info)
            done = terminated or truncated or (self.max_turns is not None and self.turns >= self.max_turns)
            return {"observations": [_chat(observed(observation, info))], "reward": reward, "done": done, "metadata": info}

        def get_metrics(self) -> dict[str, float]:
            return self._metrics

        def close(self) -> None:
            if self._env is not None:
                self._env.close()

    return PalestraTextEnv


def _chat(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": text_of(message.content)}


def metrics_of(turns: int, info: dict[str, Any]) -> dict[str, float]:
    """Return what SkyRL logs of an episode, from the ``info`` of its last step."""
    solved = {"success": float(info["success"])} if "success" in info else {}
    return {"turns": float(turns), **solved, **info.get("metrics", {})}
