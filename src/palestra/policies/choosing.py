"""``BestOf``: draw several replies per turn and let a judge choose one. ``JUDGE`` has the judges.

A judge is called with the conversation and the replies, and returns a score for each; the highest one wins, and the first of
equals. ``majority`` counts equal actions, ``likelihood`` takes the mean log-prob of the sampled tokens, and ``model`` asks the
policy itself. Your own is ``module:name``.

The chosen reply is the turn. Its tokens and those of the model's own judgment are recorded. The other replies did not reach the
environment, so they are not trained on; what they cost is in the usage of the turn.
"""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from palestra.core import Conversation, Policy
from palestra.errors import PolicyError, UsageError
from palestra.foundation.references import Role
from palestra.grading import last_boxed
from palestra.policies.asides import Aside, Calls, together, with_text
from palestra.policies.strategy import Strategy
from palestra.trajectory import Completion, Finish

__all__ = ["JUDGE", "BestOf", "likelihood", "majority", "same_action"]

JUDGE = Role(
    "judge",
    ("conversation", "replies"),
    {"majority": "palestra.policies.choosing:majority", "likelihood": "palestra.policies.choosing:likelihood"},
)
_MODEL = "model"


def same_action(text: str) -> str:
    r"""Return what replies with the same action have in common: the content of the last ``\boxed{…}``, or the last line."""
    answer = last_boxed(text)
    lines = text.strip().splitlines() or [""]
    return " ".join((lines[-1] if answer is None else answer).split()).casefold()


def majority(conversation: Conversation, replies: Sequence[Completion]) -> list[float]:
    """Score a reply by the number of replies with the same action."""
    actions = [same_action(reply.text) for reply in replies]
    counts = Counter(actions)
    return [float(counts[action]) for action in actions]


def likelihood(conversation: Conversation, replies: Sequence[Completion]) -> list[float]:
    """Score a reply by the mean log-prob of its tokens.

    Raises:
        PolicyError: The policy does not record log-probs.
    """
    sampled = [reply.tokens for reply in replies]
    if any(tokens is None for tokens in sampled):
        raise PolicyError(
            'the judge "likelihood" needs log-probs, which only hf:, vllm: and sglang: models have: use judge=majority'
        )
    return [float(np.mean(tokens.logprobs)) if tokens is not None and len(tokens.ids) else -np.inf for tokens in sampled]


class BestOf(Strategy):
    """Draw ``n`` replies per turn and play the one that ``judge`` prefers.

    Args:
        policy: The policy to call. Its temperature must be above 0, or all replies are the same.
        n: Replies per turn.
        judge: ``majority``, ``likelihood``, ``model``, or ``module:name`` of a function ``judge(conversation, replies)`` that
            returns a score for each reply. It may be ``async def``.
    """

    request = "Which of these replies is best? Answer with its number alone."

    def __init__(self, policy: Policy | Callable[[str], Any] | str, n: int = 4, judge: str = "majority") -> None:
        if n < 1:
            raise UsageError(f"n must be at least 1 reply, got {n}")
        super().__init__(policy, f"best_of?n={n}&judge={judge}")
        self.n = n
        self._judge = None if judge == _MODEL else JUDGE.load(judge)

    async def act(self, conversation: Conversation) -> Completion:
        thread, calls = self.thread(conversation), Calls(self.policy)
        thread.aside.messages += thread.news(conversation)
        turn = conversation.turn
        branches = [thread.aside.fork(turn, number) for number in range(self.n)]
        replies = await together([calls.ask(branch) for branch in branches])
        sound = [number for number, reply in enumerate(replies) if reply.finish is Finish.STOP] or [0]
        best = sound[0]
        if len(sound) > 1:
            judgment = await self._scores(conversation, [replies[number] for number in sound], calls)
            best = sound[int(np.argmax(judgment))]
        thread.aside = branches[best]
        return calls.end(replies[best])

    async def _scores(self, conversation: Conversation, replies: Sequence[Completion], calls: Calls) -> list[float]:
        if self._judge is None:
            return await self._ask(conversation, replies, calls)
        scores: Any = self._judge(conversation, replies)
        if inspect.isawaitable(scores):
            scores = await scores
        if len(scores) != len(replies):
            raise PolicyError(f"the judge returned {len(scores)} scores for {len(replies)} replies")
        return [float(score) for score in scores]

    async def _ask(self, conversation: Conversation, replies: Sequence[Completion], calls: Calls) -> list[float]:
        """Ask the policy for the number of the best reply. An answer without such a number chooses the first."""
        aside = Aside(conversation, "judge", conversation.turn)
        shown = "\n\n".join(f"Reply {number}:\n{reply.text}" for number, reply in enumerate(replies, 1))
        *before, latest = conversation.messages
        aside.messages = [*before, with_text(latest, f"{shown}\n\n{self.request}")]
        judgment = await calls.ask(aside)
        calls.keep(judgment)
        number = re.search(r"\d+", judgment.text)
        chosen = int(number[0]) if number and len(number[0]) < 9 else 1
        return [1.0 if position == chosen else 0.0 for position in range(1, len(replies) + 1)]
