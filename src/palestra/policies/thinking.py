"""Strategies that think before they act: ``ReAct`` in every turn, ``Plan`` once before the first one.

========= ================================================== ===============================================
strategy  what a later prompt shows                          segments
========= ================================================== ===============================================
react     thoughts and actions (``keep``), or actions alone  one; with ``keep=False`` one per turn
plan      the plan, then all turns                           one
========= ================================================== ===============================================
"""

from collections.abc import Callable
from typing import Any

from palestra.core import Conversation, Policy
from palestra.errors import UsageError
from palestra.policies.asides import Calls, with_text
from palestra.policies.strategy import Strategy, split_reply
from palestra.trajectory import Completion, Message

__all__ = ["Plan", "ReAct"]


class ReAct(Strategy):
    """Ask for a thought and an action in every reply. The environment gets what follows the last ``Action:``.

    A reply without ``Action:`` goes to the environment as it is.

    Args:
        policy: The policy to call.
        keep: Whether later prompts show the thoughts. If false, they show the actions alone.
    """

    request = (
        "In every reply, first write one line that begins with Thought: and says what you know and what to do next. "
        "Then write one line that begins with Action: and gives your action in the form that the task asks for."
    )

    def __init__(self, policy: Policy | Callable[[str], Any] | str, keep: bool = True) -> None:
        super().__init__(policy, "react" if keep else "react?keep=false")
        self.keep = keep

    async def act(self, conversation: Conversation) -> Completion:
        thread, calls = self.thread(conversation), Calls(self.policy)
        first, messages = thread.first, thread.aside.messages
        if not first and not self.keep:
            messages[-1] = Message("assistant", f"Action: {split_reply(str(messages[-1].content))[1]}")
        messages += thread.news(conversation)
        if first:
            messages[-1] = with_text(messages[-1], self.request)
        completion = await calls.ask(thread.aside)
        thought, action = split_reply(completion.text)
        return calls.end(completion, action, thought)


class Plan(Strategy):
    """Ask for a plan before the first action, and again after every ``every`` turns.

    Args:
        policy: The policy to call.
        every: Turns between two plans; 0 plans once.
    """

    request = "Do not act yet. First write a short plan: the steps that solve the task, in order."
    proceed = "Follow the plan. Reply with the next action alone, in the form that the task asks for."

    def __init__(self, policy: Policy | Callable[[str], Any] | str, every: int = 0) -> None:
        if every < 0:
            raise UsageError(f"every must be a number of turns, or 0 to plan once, got {every}")
        super().__init__(policy, f"plan?every={every}" if every else "plan")
        self.every = every

    async def act(self, conversation: Conversation) -> Completion:
        thread, calls = self.thread(conversation), Calls(self.policy)
        messages, turn = thread.aside.messages, conversation.turn
        messages += thread.news(conversation)
        if turn == 0 or (self.every and turn % self.every == 0):
            messages[-1] = with_text(messages[-1], self.request)
            plan = await calls.ask(thread.aside)
            calls.keep(plan)
            if (ended := calls.stopped(plan)) is not None:
                return ended
            messages.append(Message("user", self.proceed))
        return calls.end(await calls.ask(thread.aside))
