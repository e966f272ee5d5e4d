"""Conversations besides that of the episode, for strategies that call a policy more than once per turn.

An ``Aside`` is a conversation of its own: its messages, its memory and its random numbers. The policy that is called in it
keeps there what it has rendered and sampled, so the next call in the same aside extends the same token segment. ``fork`` copies
an aside: the copies share their past, token by token, and sample different continuations.

``Calls`` collects what the calls of one turn sampled and cost, and makes the completion of the turn from it.
"""

import asyncio
import copy
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from palestra.core import AsyncEnv, Conversation, Policy
from palestra.foundation.seeding import derive_seed
from palestra.policies.acting import next_completion
from palestra.trajectory import Completion, Finish, Message, Text, Tokens, Usage

__all__ = ["Aside", "Calls", "cost_of", "together", "with_text"]

Result = TypeVar("Result")


class Aside(Conversation):
    """A conversation inside the episode of ``within``.

    Args:
        within: The conversation of the episode, or another aside.
        key: Numbers or words that tell it apart from other asides of the same conversation; its random numbers depend on them.
    """

    __slots__ = ("_key", "_within")

    def __init__(self, within: Conversation, *key: int | str) -> None:
        super().__init__(within.task, player=within.player)
        self._within = within
        self._key = key
        self.opening = within.opening

    @property
    def env(self) -> AsyncEnv:
        """The environment of the episode, for a policy that declares ``privileged = True``."""
        return self._within.env

    @property
    def seed(self) -> int:
        """A seed derived from that of the conversation around it, and from the key."""
        return derive_seed(self._within.seed, "aside", *self._key)

    def fork(self, *key: int | str) -> "Aside":
        """Return an independent copy with another key. What policies keep in ``memory`` is copied too."""
        return self._copied(self._within, key, {})

    def __deepcopy__(self, memo: dict[int, Any]) -> "Aside":
        # The conversation of the episode is shared; an aside around this one is copied before it.
        return self._copied(memo.get(id(self._within), self._within), self._key, memo)

    def _copied(self, within: Conversation, key: tuple[int | str, ...], memo: dict[int, Any]) -> "Aside":
        twin = Aside(within, *key)
        twin.opening = self.opening
        twin.messages = list(self.messages)
        memo[id(self)] = twin
        twin.memory = copy.deepcopy(self.memory, memo)
        return twin


class Calls:
    """The calls of ``policy`` in one turn of a strategy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.notes: list[Tokens] = []
        """Tokens of all calls before the last one, in the order in which they were sampled."""
        self.usage = Usage()

    async def ask(self, aside: Aside) -> Completion:
        """Return the reply of the policy in ``aside``, which keeps the reply as its latest message."""
        completion = await next_completion(self.policy, aside)
        aside.messages.append(Message("assistant", completion.text, completion.reasoning))
        self.pay(completion)
        return completion

    def pay(self, completion: Completion) -> None:
        """Count what ``completion`` cost."""
        self.usage = _sum(self.usage, cost_of(completion))

    def keep(self, completion: Completion) -> None:
        """Record the tokens of ``completion`` as a note: they are not the action of the turn, but the model sampled them."""
        self.notes += [*completion.notes, *([] if completion.tokens is None else [completion.tokens])]

    def end(self, completion: Completion, text: str | None = None, thought: str = "") -> Completion:
        """Return the completion of the turn: ``text`` for the environment, with the tokens and costs of all calls.

        Args:
            completion: The last call.
            text: The action; by default the text of ``completion``.
            thought: What precedes the action and is not sent to the environment. It is kept as reasoning.
        """
        reasoning = "\n".join(part for part in (completion.reasoning, thought) if part)
        return Completion(
            completion.text if text is None else text,
            completion.finish,
            reasoning,
            completion.tokens,
            (*self.notes, *completion.notes),
            self.usage,
        )

    def stopped(self, completion: Completion) -> Completion | None:
        """Return the last completion of the episode if ``completion`` found a full context or an exhausted budget."""
        if completion.finish not in (Finish.OVERFLOW, Finish.BUDGET):
            return None
        return Completion("", completion.finish, notes=tuple(self.notes), usage=self.usage)


async def together(calls: Sequence[Coroutine[Any, Any, Result]]) -> list[Result]:
    """Return the results of ``calls``, which run at the same time. If some fail, raise the first error alone."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def cost_of(completion: Completion) -> Usage:
    """Return what ``completion`` cost. If it does not say, its tokens are counted."""
    if completion.usage is not None:
        return completion.usage
    sampled = [*completion.notes, *([] if completion.tokens is None else [completion.tokens])]
    return Usage(sum(len(tokens.prompt) for tokens in sampled), sum(len(tokens.ids) for tokens in sampled))


def _sum(usage: Usage, added: Usage) -> Usage:
    reasons = {**usage.retries, **added.retries}
    return Usage(
        prompt_tokens=usage.prompt_tokens + added.prompt_tokens,
        completion_tokens=usage.completion_tokens + added.completion_tokens,
        dollars=usage.dollars + added.dollars,
        retries={reason: usage.retries.get(reason, 0) + added.retries.get(reason, 0) for reason in reasons},
    )


def with_text(message: Message, text: str) -> Message:
    """Return ``message`` with ``text`` in a paragraph after its content."""
    content = message.content
    if isinstance(content, str):
        return Message(message.role, f"{content}\n\n{text}" if content else text)
    return Message(message.role, (*content, Text(f"\n\n{text}")))
