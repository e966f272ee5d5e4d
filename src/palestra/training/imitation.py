"""Warm start: learn to write what a teacher wrote, with the batches and the learner of reinforcement learning.

A teacher is any policy that answers in text: the environment's oracle, a legal random player, the best of n tries. What it says
is put into tokens once, as if the model had sampled it, so its trajectories have the segments that the model's own will have:
the same prompts, the same spans, the same stop token. From there on supervised learning is the plain policy gradient with an
advantage of one.
"""

from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import numpy as np

from palestra.core import Conversation, Generation, Policy, Renderer, Sampling, Session
from palestra.encoding import Ints, floats, ints
from palestra.policies.sampled import SampledPolicy
from palestra.seeding import derive
from palestra.training.batch import Batch
from palestra.training.learner import Learner
from palestra.training.loss import LossConfig
from palestra.trajectory import Completion, Finish, Tokens, Trajectory

__all__ = ["TaughtPolicy", "VariedPolicy", "imitate"]

_REPEATS = 0.1
"""How often a varied player does not mind repeating itself, so that what the environment says to that is seen too."""
_TRIES = 16
"""Moves drawn in search of a new one."""

_SUPERVISED = LossConfig("plain", importance="none")
_said: ContextVar[str] = ContextVar("said")


class VariedPolicy:
    """Makes random well-formed moves and seldom one that it has made before.

    Imitating it teaches the form of a move and to look at the history, and nothing of what a good move is.
    """

    name = "varied"

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


class TaughtPolicy:
    """Says what a teacher says, and records it as tokens of the model that shall learn it."""

    def __init__(
        self,
        teacher: Policy,
        renderer: Renderer,
        encode: Callable[[str], Sequence[int]],
        context_length: int,
        **options: Any,
    ) -> None:
        """``encode`` is the tokenizer's, without special tokens; ``options`` are those of ``SampledPolicy``."""
        self.name = f"taught by {getattr(teacher, 'name', type(teacher).__name__)}"
        self._teacher = teacher
        self._writer = SampledPolicy(renderer, _Dictation(encode, renderer.stop_ids[0], context_length), **options)

    async def act(self, conversation: Conversation) -> Completion:
        # Each episode is an asyncio task with a context of its own, so nobody else reads what is said here.
        _said.set((await self._teacher.act(conversation)).text)
        return await self._writer.act(conversation)


class _Dictation:
    """An engine that writes down what was said."""

    def __init__(self, encode: Callable[[str], Sequence[int]], stop: int, context_length: int) -> None:
        self.context_length = context_length
        self._encode = encode
        self._stop = stop

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
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
    """Learn from ``trajectories``, all of them ``epochs`` times. Returns the metrics of every update."""
    batch = Batch.of([one for one in trajectories if not one.stop.failed and one.segments])
    ones = np.ones(len(batch.positions))
    batch = replace(batch, old=np.zeros(len(ones)), advantages=ones)
    return [learner.update(part, _SUPERVISED) for _ in range(epochs) for part in batch.split(minibatches, rng)]
