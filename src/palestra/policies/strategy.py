"""``Strategy``: a policy around another policy, and the names of those that come with Palestra.

A strategy decides which prompts the policy sees and what of its replies the environment gets: it asks for a thought or a plan
first, keeps notes, or draws several replies. It works with every policy, because it only calls ``act``. Around a
``SampledPolicy`` every token of a turn is recorded as it was sampled, so a recipe can train with a strategy. Around a
``ChatPolicy`` the same strategy plays a chat API.

A strategy is named like the other parts: by a short name, or ``module:name`` for one of your own, with keywords. A recipe
writes ``policy = {use = "react", keep = false}``, the command line ``--strategy react?keep=false``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from palestra.core import Conversation, Policy
from palestra.errors import UsageError
from palestra.policies.acting import is_privileged, policy_name
from palestra.policies.asides import Aside
from palestra.policies.scripted import as_policy
from palestra.recipes.play import STRATEGY
from palestra.registry.specs import parse_options
from palestra.trajectory import Completion, Message

__all__ = ["Strategy", "Thread", "named_strategy", "split_reply"]


def named_strategy(name: str, /, **keywords: Any) -> Callable[[Policy], Policy]:
    """Return the strategy that ``name`` means, as a function from policy to policy.

    Args:
        name: ``react``, ``plan``, ``scratchpad``, ``reflect``, ``best_of``, ``tree``, or ``module:name`` of your own class or
            function. Options may be part of the name: ``best_of?n=8``.
        keywords: Arguments of the class or function, besides the policy.

    Raises:
        UsageError: There is no such strategy, or it does not take these keywords.

    Example::

        policy = named_strategy("react?keep=false")(palestra.ChatPolicy(endpoint))
    """
    use, options = parse_options(name)
    make = STRATEGY.load({"use": use, **options, **keywords})

    def around(policy: Policy) -> Policy:
        made = make(policy)
        if not hasattr(made, "act"):
            raise UsageError(f'the strategy "{use}" returned a {type(made).__name__}; expected a policy, which has act()')
        strategy: Policy = made
        return strategy

    return around


class Strategy:
    """A policy around another one. Inherit from it and write ``act``, or write a policy of your own that takes a policy.

    Args:
        policy: The policy to call: an object with ``act``, a function of text, ``"random"`` or ``"oracle"``.
        label: The name of the strategy and its settings. Reports show it after the name of the policy.
    """

    def __init__(self, policy: Policy | Callable[[str], Any] | str, label: str) -> None:
        self.policy = as_policy(policy)
        self.name = f"{policy_name(self.policy)} + {label}"
        self.privileged = is_privileged(self.policy)

    @property
    def renderer(self) -> Any:
        """The renderer of the policy, if it has one. Evaluations write its vocabulary for the viewer."""
        return getattr(self.policy, "renderer", None)

    async def act(self, conversation: Conversation) -> Completion:
        raise NotImplementedError(f"{type(self).__name__} has no act()")

    def thread(self, conversation: Conversation) -> "Thread":
        """Return what the strategy keeps of this episode."""
        thread: Thread | None = conversation.memory.get("strategy")
        if thread is None:
            thread = conversation.memory["strategy"] = Thread(Aside(conversation, "strategy"))
        return thread


@dataclass
class Thread:
    """The aside in which a strategy plays an episode, and how much of the episode it has seen."""

    aside: Aside
    seen: int = 0
    """Messages of the episode that have been read, with the reply that follows them."""
    text: str = ""
    """The memory of the strategy: a scratchpad, or the notes on earlier attempts."""

    def news(self, conversation: Conversation) -> list[Message]:
        """Return the messages since the last turn. The first turn has the opening and the first observation."""
        news = conversation.messages[self.seen :]
        self.seen = len(conversation.messages) + 1
        return news

    @property
    def first(self) -> bool:
        """Whether no turn has been played yet."""
        return not self.seen


def split_reply(reply: str, label: str = "Action:") -> tuple[str, str]:
    """Return what stands before the last ``label`` and after it. Without the label, all of ``reply`` is the second part."""
    before, separator, after = reply.rpartition(label)
    return (before.strip(), after.strip()) if separator else ("", reply)
