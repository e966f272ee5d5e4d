"""Policies by name, and any function of text.

Random and oracle need no model. They ask the environment itself for an action. They are ``privileged``: their scores are
baselines.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from palestra.core import Conversation, Policy
from palestra.errors import UsageError
from palestra.trajectory import Completion, text_of

__all__ = ["BUILT_IN", "CallablePolicy", "OraclePolicy", "RandomPolicy", "as_policy"]


class RandomPolicy:
    """Takes random well-formed actions.

    Members of a group take different actions. Each takes the same actions again under the same run seed.
    """

    name = "random"
    privileged = True

    async def act(self, conversation: Conversation) -> Completion:
        if "seeded" not in conversation.memory:
            conversation.memory["seeded"] = True
            await conversation.env.seed_actions(conversation.seed)
        return Completion(await conversation.env.sample_random_action())


class OraclePolicy:
    """Takes the action that the environment's ``oracle`` returns."""

    name = "oracle"
    privileged = True

    async def act(self, conversation: Conversation) -> Completion:
        return Completion(await conversation.env.oracle())


class CallablePolicy:
    """Any function ``str -> str``, plain or async.

    The function sees the latest observation only. Wrap the environment in ``KeepHistory`` to show it earlier turns.
    """

    def __init__(self, function: Callable[[str], str] | Callable[[str], Awaitable[str]]) -> None:
        self.function: Callable[[str], Any] = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def act(self, conversation: Conversation) -> str | Awaitable[str]:
        answer: str | Awaitable[str] = self.function(text_of(conversation.observation))
        return answer


def _tiny() -> Policy:
    from palestra.policies.tiny import tiny_policy  # loads NumPy and the weights

    return tiny_policy()


BUILT_IN: Mapping[str, Callable[[], Policy]] = {"random": RandomPolicy, "oracle": OraclePolicy, "tiny": _tiny}
"""The policies that have a name."""


def as_policy(policy: Policy | Callable[[str], Any] | str) -> Policy:
    """Return a policy made from a policy, a function of text, or one of the names ``random``, ``oracle`` and ``tiny``.

    Raises:
        UsageError: ``policy`` is none of these.
    """
    if isinstance(policy, str):
        if policy not in BUILT_IN:
            names = ", ".join(f'"{name}"' for name in BUILT_IN)
            raise UsageError(f'no policy is called "{policy}"; there are {names}, or pass an object or a function')
        return BUILT_IN[policy]()
    if isinstance(policy, type) and hasattr(policy, "act"):
        raise UsageError(f"a policy is an object, got the class {policy.__name__}: pass {policy.__name__}()")
    if hasattr(policy, "act"):
        return policy
    if callable(policy):
        return CallablePolicy(policy)
    raise UsageError(f"a policy has a method act(conversation) or is a function of text, got {type(policy).__name__}")
