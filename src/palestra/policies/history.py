"""How much of an episode the model is shown. Each choice implies its own segments.

============== ============================================= ==============================================
history        what the model sees                           segments
============== ============================================= ==============================================
full           everything                                    one, as long as the template does not rewrite
window         the task, then the last turns                 one until the window moves, then one per turn
last           the task and the latest observation           one per turn
summary        the task, a summary, what came since          one up to and with each summary
============== ============================================= ==============================================

The task, which is the first observation with its opening, is never dropped. A summary is written by the model itself; its
tokens are recorded and trained like any other.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from palestra.core import Conversation
from palestra.errors import UsageError
from palestra.trajectory import Message, text_of

__all__ = ["Ask", "FullHistory", "History", "LastObservation", "Summary", "Window"]

Ask = Callable[[Sequence[Message]], Awaitable[str]]
"""Sends messages to the model outside the episode, and returns its text."""


class History(Protocol):
    """Chooses what the model is shown."""

    async def view(self, conversation: Conversation, ask: Ask) -> Sequence[Message]:
        """Return the messages that the model sees. The last one is the latest observation."""
        ...


class FullHistory:
    """Everything, from the beginning."""

    async def view(self, conversation: Conversation, ask: Ask) -> Sequence[Message]:
        return conversation.messages


class Window:
    """The task and the last ``turns`` exchanges."""

    def __init__(self, turns: int) -> None:
        if turns < 1:
            raise UsageError(f"a window holds at least one turn, got {turns}; for none use LastObservation()")
        self.turns = turns

    async def view(self, conversation: Conversation, ask: Ask) -> Sequence[Message]:
        head = _head(conversation)
        replies = [
            number for number, message in enumerate(conversation.messages) if message.role == "assistant" and number >= head
        ]
        if len(replies) <= self.turns:
            return conversation.messages
        return [*conversation.messages[:head], *conversation.messages[replies[-self.turns] :]]


class LastObservation:
    """The task and the latest observation, in one message; nothing the model said itself."""

    async def view(self, conversation: Conversation, ask: Ask) -> Sequence[Message]:
        head, latest = _head(conversation), _latest(conversation.messages)
        if latest < head:
            return conversation.messages
        return [
            *conversation.messages[: head - 1],
            _joined(conversation.messages[head - 1], conversation.messages[latest:]),
        ]


class Summary:
    """After every ``turns`` exchanges the model sums up; from then on it sees the task, that summary and what came since."""

    request = "Sum up what matters for the next steps: what was tried, what was learned, what is left to do. Be brief."

    def __init__(self, turns: int) -> None:
        if turns < 1:
            raise UsageError(f"a summary is due after at least one turn, got {turns}")
        self.turns = turns

    async def view(self, conversation: Conversation, ask: Ask) -> Sequence[Message]:
        messages = conversation.messages
        shown = self._shown(conversation)
        begun = conversation.memory.get("summary_until", conversation.opening)
        since = sum(message.role == "assistant" for message in messages[begun:])
        if since < self.turns:
            return shown
        # The latest observation is left out of the summary: it is what the model acts upon next.
        latest = _latest(messages)
        old = shown[: len(shown) - (len(messages) - latest)]
        summary = await ask([*old, Message("user", self.request)])
        conversation.memory.update(summary=summary, summary_until=latest)
        return self._shown(conversation)

    def _shown(self, conversation: Conversation) -> Sequence[Message]:
        messages, until = conversation.messages, conversation.memory.get("summary_until", 0)
        if not until:
            return messages
        head = _head(conversation)
        summary = Message("user", f"Your summary so far: {conversation.memory['summary']}")
        # What follows the summary up to the next reply is one message: templates want the roles to alternate.
        reply = next((i for i in range(until, len(messages)) if messages[i].role == "assistant"), len(messages))
        return [*messages[: head - 1], _joined(messages[head - 1], [summary, *messages[until:reply]]), *messages[reply:]]


def _head(conversation: Conversation) -> int:
    """How many messages state the task: everything before the first reply."""
    messages = conversation.messages
    return next((at for at in range(conversation.opening, len(messages)) if messages[at].role == "assistant"), len(messages))


def _latest(messages: Sequence[Message]) -> int:
    """Where the latest observation begins: after the last reply."""
    return next((i + 1 for i in range(len(messages) - 1, -1, -1) if messages[i].role == "assistant"), 0)


def _joined(task: Message, rest: Sequence[Message]) -> Message:
    return Message("user", "\n\n".join(text_of(message.content) for message in (task, *rest)))
