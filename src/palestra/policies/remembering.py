"""Strategies that write notes to themselves: ``Scratchpad`` within an episode, ``Reflect`` from one attempt to the next.

========== ====================================================== ====================================
strategy   what a prompt shows                                    segments
========== ====================================================== ====================================
scratchpad the task, the notes, the latest observation            one per turn
reflect    the task, the notes on earlier attempts, this attempt  one per attempt, with its note
========== ====================================================== ====================================

Memory by summary is a history (``policies.history.Summary``), because it changes only what the model is shown.
"""

from collections.abc import Callable, Sequence
from typing import Any

from palestra.core import Conversation, Policy
from palestra.policies.asides import Aside, Calls, with_text
from palestra.policies.strategy import Strategy, Thread, split_reply
from palestra.trajectory import Completion, Content, Message, Text, text_of
from palestra.wrappers.attempts import AttemptBoundary, split_attempts

__all__ = ["Reflect", "Scratchpad"]


class Scratchpad(Strategy):
    """Show the model the task, its own notes and the latest observation. Every reply may replace the notes.

    The environment gets what follows the last ``Action:`` of a reply, and the notes are what follows ``Notes:`` before it. A
    reply without ``Notes:`` leaves the notes as they are; a reply without ``Action:`` goes to the environment as it is.

    Args:
        policy: The policy to call.
    """

    request = (
        "You see only the task, your notes and the latest observation. In every reply, first write Notes: and everything "
        "that you must remember. Then write one line that begins with Action: and gives your action in the form that the task "
        "asks for."
    )

    def __init__(self, policy: Policy | Callable[[str], Any] | str) -> None:
        super().__init__(policy, "scratchpad")

    async def act(self, conversation: Conversation) -> Completion:
        thread, calls, turn = self.thread(conversation), Calls(self.policy), conversation.turn
        news = thread.news(conversation)
        if turn == 0:
            thread.aside.messages += news
        # Everything up to and with the first observation states the task; later replies and observations are not shown.
        *head, task = thread.aside.messages[: conversation.opening + 1]
        shown = with_text(task, self.request)
        if thread.text:
            shown = with_text(shown, f"Your notes:\n{thread.text}")
        if turn:
            shown = _followed_by(shown, news)
        thread.aside.messages = [*head, shown]
        completion = await calls.ask(thread.aside)
        before, action = split_reply(completion.text)
        thread.aside.messages = [*head, task]
        if "Notes:" in before:
            thread.text = before.partition("Notes:")[2].strip()
        return calls.end(completion, action, before)


def _followed_by(message: Message, rest: Sequence[Message]) -> Message:
    for following in rest:
        content = following.content if isinstance(following.content, tuple) else (Text(following.content),)
        shown = with_text(message, "The latest observation:\n").content
        parts = shown if isinstance(shown, tuple) else (Text(shown),)
        joined: Content = (*parts, *content)
        plain = all(isinstance(part, Text) for part in joined)
        message = Message(message.role, text_of(joined) if plain else joined)
    return message


class Reflect(Strategy):
    """After a failed attempt, ask for a note on it, and show the notes at the beginning of the next attempt.

    Wrap the environment in ``Attempts``; without it there is one attempt and no note. A new attempt starts a new prompt: it
    shows the task and the notes, and nothing else of the earlier attempts.

    Args:
        policy: The policy to call.
    """

    request = (
        "This attempt has failed, and the same task begins again. Write a short note to yourself: what went wrong, and what "
        "to do differently in the next attempt. Do not act yet."
    )

    def __init__(self, policy: Policy | Callable[[str], Any] | str) -> None:
        super().__init__(policy, "reflect")

    async def act(self, conversation: Conversation) -> Completion:
        thread, calls = self.thread(conversation), Calls(self.policy)
        for message in thread.news(conversation):
            boundary = split_attempts(message.content)
            if boundary is None:
                thread.aside.messages.append(message)
                continue
            if (ended := await self._note(thread, calls, conversation, boundary)) is not None:
                return ended
        return calls.end(await calls.ask(thread.aside))

    async def _note(
        self, thread: Thread, calls: Calls, conversation: Conversation, boundary: AttemptBoundary
    ) -> Completion | None:
        """Ask for the note on the failed attempt, and begin the next one. Returns a completion if the episode ends here."""
        thread.aside.messages.append(with_text(Message("user", boundary.outcome), self.request))
        written = await calls.ask(thread.aside)
        calls.keep(written)
        if (ended := calls.stopped(written)) is not None:
            return ended
        thread.text += f"\n\nYour note on attempt {boundary.attempt}: {written.text.strip()}"
        opening = conversation.messages[: conversation.opening]
        thread.aside = Aside(conversation, "attempt", boundary.attempt + 1)
        thread.aside.messages = [*opening, with_text(Message("user", boundary.start), thread.text.strip())]
        return None
