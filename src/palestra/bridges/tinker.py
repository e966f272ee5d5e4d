"""Palestra's environments in the Tinker cookbook's rollouts and training loop. Tried with tinker 0.36.0, tinker-cookbook 0.5.8.

Tinker samples; Palestra renders, so no text is tokenized twice. Every turn has its own reward. If the chat template rewrites
earlier messages, the next prompt does not continue the last one, and Tinker makes a new ``Datum`` of it.

A reply that was cut is not a move: it ends the episode, and its turn has the reward 0. An environment that fails raises its
error in the rollout, and Tinker's ``RolloutStrategy`` decides: ``MinViableGroup`` leaves the episode out of its group,
``RetryOnFailure`` plays it again, and ``FailFast``, usually the default, ends the run. A failed episode is never a
zero.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from palestra.bridges.leases import LentEnv, first_messages
from palestra.bridges.versions import framework
from palestra.core import Renderer
from palestra.foundation.encoding import Ints, ints
from palestra.trajectory import Message, Task, observed

__all__ = ["GroupOptions", "PalestraEnv", "PalestraGroup", "task_source"]


@dataclass(frozen=True)
class GroupOptions:
    """How groups are played: the model (its name for ``get_tokenizer``, or a folder), the episodes per group, and limits.

    ``max_turns`` limits the turns, besides the environment's own limit. ``context_length`` limits the tokens of a prompt.
    """

    model: str
    size: int = 8
    max_turns: int | None = None
    context_length: int | None = None


def task_source(tasks: Sequence[Task], options: GroupOptions, *, groups: int = 1, held_out: Sequence[Task] = ()) -> Any:
    """Return the ``dataset_builder`` of ``train.Config``: one group of episodes per task, ``groups`` of them per batch."""
    types, chz = _tinker(), framework("tinker", "chz", "chz")

    class PalestraTasks(list[Sequence[Task]]):
        def get_batch(self, index: int) -> list[PalestraGroup]:
            return [PalestraGroup(task, options) for task in self[index]]

    def batches(some: Sequence[Task]) -> PalestraTasks:
        return PalestraTasks(some[at : at + groups] for at in range(0, len(some), groups))

    @chz.chz
    class PalestraSource(types.RLDatasetBuilder):  # type: ignore[name-defined]
        async def __call__(self) -> Any:
            return batches(tasks), batches(held_out) if held_out else None

    types.RLDataset.register(PalestraTasks)
    return PalestraSource()


@cache
def _tinker() -> Any:
    """The cookbook's types, with our classes as virtual subclasses of its own."""
    used = ("Env", "EnvGroupBuilder", "InitialObservationOverflow", "RLDataset", "RLDatasetBuilder", "StepResult", "tinker")
    types = framework("tinker", "tinker_cookbook.rl.types", *used)
    types.Env.register(PalestraEnv)
    types.EnvGroupBuilder.register(PalestraGroup)
    return types


@cache
def _renderer(model: str) -> Renderer:
    from palestra.inference.rendering import renderer_for

    return renderer_for(framework("tinker", "tinker_cookbook.tokenizer_utils", "get_tokenizer").get_tokenizer(model))


class PalestraEnv:
    """One episode: Tinker's ``Env``."""

    def __init__(self, task: Task, options: GroupOptions) -> None:
        self.task, self.options, self.renderer = task, options, _renderer(options.model)
        self.lent: LentEnv | None = None  # made by the first call: for a retry, Tinker builds a whole group and uses one of it
        self.turns, self.prompt, self.messages = 0, ints([]), list[Message]()

    async def initial_observation(self) -> Any:
        self.lent = LentEnv(self.task.env)
        observation, info = await self.lent.reset_async(task=self.task)
        self.messages = first_messages(observation, info)
        self.prompt = self.renderer.first(self.messages)
        if self._is_too_long():
            return _tinker().InitialObservationOverflow(0.0, {"stop/max_tokens": 1.0})
        return self._next()

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        cut = not action or (extra or {}).get("stop_reason") == "length"
        reward, metrics, end = (0.0, {}, "max_tokens") if cut else await self._act(ints(action))
        metrics.update({f"stop/{end}": 1.0} if end else {})
        return _tinker().StepResult(reward, bool(end), *self._next(), metrics)

    async def _act(self, ids: Ints) -> tuple[float, dict[str, float], str]:
        """Play a reply. Returns its reward, metrics, and why the episode is over, or an empty text."""
        assert self.lent is not None, "initial_observation() has to come first"
        text, reasoning = self.renderer.read(self.prompt, ids)
        observation, reward, terminated, truncated, info = await self.lent.step_async(text)
        self.turns += 1
        metrics = {key: float(info[key]) for key in ("success",) if key in info} | info.get("metrics", {})
        if terminated or truncated or self.turns == self.options.max_turns:
            return reward, metrics, "completed" if terminated else "max_turns"
        self.messages += [Message("assistant", text, reasoning), observed(observation, info)]
        tail = self.renderer.extend(self.prompt, ids, self.messages[-1:])
        prompt = self.renderer.first(self.messages) if tail is None else np.concatenate([self.prompt, ids, tail])
        self.prompt = ints(prompt)
        return reward, metrics, "context_overflow" if self._is_too_long() else ""

    def _next(self) -> tuple[Any, list[int]]:
        return _tinker().tinker.ModelInput.from_ints(self.prompt.tolist()), list(self.renderer.stop_ids)

    def _is_too_long(self) -> bool:
        return len(self.prompt) > (self.options.context_length or len(self.prompt))


@dataclass
class PalestraGroup:
    """``options.size`` episodes of one task: Tinker's ``EnvGroupBuilder``."""

    task: Task
    options: GroupOptions
    made: list[PalestraEnv] = field(default_factory=list, init=False)

    async def make_envs(self) -> list[PalestraEnv]:
        self.made += (envs := [PalestraEnv(self.task, self.options) for _ in range(self.options.size)])
        return envs

    async def compute_group_rewards(self, trajectory_group: Sequence[Any], env_group: Sequence[Any]) -> Any:
        return [(0.0, {}) for _ in trajectory_group]

    async def cleanup(self) -> None:
        made, self.made = self.made, []
        lents = [env.lent for env in made if env.lent is not None]
        for outcome in await asyncio.gather(*(lent.close_async() for lent in lents), return_exceptions=True):
            if isinstance(outcome, BaseException):  # only after all the others have been closed
                raise outcome

    def logging_tags(self) -> list[str]:
        return [self.task.env]
