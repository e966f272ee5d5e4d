"""Imitation: learn to write what a teacher wrote, with the batches and the learner of reinforcement learning.

A teacher is any policy that answers in text: the environment's oracle, a legal random player, the best of n attempts. Its text
is encoded once, as if the model had sampled it. So its trajectories have the segments that the model's own will have: the same
prompts, spans and stop token. Supervised learning is then the plain policy gradient with an advantage of 1.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from palestra.core import Conversation, EngineSession, Generation, Policy, Renderer, Sampling
from palestra.foundation.encoding import Ints, floats, ints
from palestra.foundation.seeding import derive
from palestra.policies import as_policy, is_privileged, next_completion, policy_name
from palestra.policies.sampled import SampledPolicy
from palestra.recipes.algorithms import LossConfig
from palestra.training.learner.batch import Batch
from palestra.training.learner.learner import Learner
from palestra.trajectory import Completion, Finish, Tokens, Trajectory

__all__ = ["TaughtPolicy", "VariedPolicy", "imitate", "oracle_teacher", "random_teacher", "varied_teacher"]

_REPEATS = 0.1
"""How often the varied player accepts a repeated move, so that the model also sees how the environment answers one."""
_TRIES = 16
"""How many moves the varied player draws to find a new one."""

_SUPERVISED = LossConfig("plain", importance="none")
_said: ContextVar[str] = ContextVar("said")


class VariedPolicy:
    """Makes random well-formed moves, and seldom repeats one.

    A model that imitates it learns the form of a move and to look at the history, but not what a good move is.
    """

    name = "varied"
    privileged = True

    async def act(self, conversation: Conversation) -> Completion:
        memory = conversation.memory
        if "random" not in memory:
            memory["random"] = derive(conversation.seed, "varied")
            await conversation.env.seed_actions(conversation.seed)
        made = {message.content for message in conversation.messages if message.role == "assistant"}
        move = await conversation.env.sample_random_action()
        if memory["random"].random() < _REPEATS:
            return Completion(move)
        for _ in range(_TRIES):
            if move not in made:
                break
            move = await conversation.env.sample_random_action()
        return Completion(move)


def oracle_teacher() -> Policy:
    """The environment's own oracle."""
    return as_policy("oracle")


def random_teacher() -> Policy:
    """Legal random moves."""
    return as_policy("random")


def varied_teacher() -> Policy:
    """Random moves that are seldom repeated."""
    return VariedPolicy()


class TaughtPolicy:
    """Acts as a teacher does, and records the actions as tokens of the model that imitates it."""

    def __init__(
        self,
        teacher: Policy,
        renderer: Renderer,
        encode: Callable[[str], Sequence[int]],
        context_length: int,
        **options: Any,
    ) -> None:
        """``encode`` is the tokenizer's, without special tokens; ``options`` are keywords of ``SampledPolicy``."""
        self.name = f"taught by {policy_name(teacher)}"
        self.privileged = is_privileged(teacher)
        self._teacher = teacher
        self._writer = SampledPolicy(renderer, _Dictation(encode, renderer.stop_ids[0], context_length), **options)

    async def act(self, conversation: Conversation) -> Completion:
        # Each episode is an asyncio task with its own context, so no other episode reads this text.
        _said.set((await next_completion(self._teacher, conversation)).text)
        return await self._writer.act(conversation)


class _Dictation:
    """An engine that returns the tokens of the teacher's text."""

    def __init__(self, encode: Callable[[str], Sequence[int]], stop: int, context_length: int) -> None:
        self.context_length = context_length
        self._encode = encode
        self._stop = stop

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        ids = [*self._encode(_said.get()), self._stop]
        finish = Finish.STOP if len(ids) <= sampling.max_tokens else Finish.LENGTH
        ids = ids[: sampling.max_tokens]
        return Generation(Tokens(prompt, ints(ids), floats(np.zeros(len(ids)))), finish)

    async def update_weights(self, source: Any, version: int) -> None: ...

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def close(self) -> None: ...


def imitate(
    learner: Learner, trajectories: Iterable[Trajectory], *, epochs: int, minibatches: int, rng: np.random.Generator
) -> list[dict[str, float]]:
    """Learn from ``trajectories`` in ``epochs`` passes, and return the metrics of every update."""
    batch = Batch.of(list(trajectories))
    ones = np.ones(len(batch.positions))
    batch = replace(batch, old=np.zeros(len(ones)), advantages=ones)
    return [learner.update(part, _SUPERVISED) for _ in range(epochs) for part in batch.split(minibatches, rng)]
