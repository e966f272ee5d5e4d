"""Players that need no model: random, oracle, any callable, and a person at a terminal.

Random and oracle ask the environment itself for an action, which is what makes them reference lines and not contestants.
"""

import inspect
import warnings
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from palestra.core import Conversation, Policy
from palestra.errors import HeldLoop, PolicyError, UsageError
from palestra.trajectory import Completion, text_of
from palestra.views.direct import LONGEST_HOLD

__all__ = ["CallablePolicy", "HumanPolicy", "OraclePolicy", "RandomPolicy", "as_policy", "policy_name"]


class RandomPolicy:
    """Takes random well-formed actions. Players of the same task differ, and each repeats itself under the same run seed."""

    name = "random"

    async def act(self, conversation: Conversation) -> Completion:
        if "seeded" not in conversation.memory:
            conversation.memory["seeded"] = True
            await conversation.env.seed_actions(conversation.seed)
        return Completion(await conversation.env.sample_random_action())


class OraclePolicy:
    """Takes the action that the environment says a perfect player takes."""

    name = "oracle"

    async def act(self, conversation: Conversation) -> Completion:
        return Completion(await conversation.env.oracle())


class CallablePolicy:
    """Any ``str -> str``, plain or async. It sees the latest observation; wrap the environment in ``KeepHistory`` for more."""

    def __init__(self, function: Callable[[str], str] | Callable[[str], Awaitable[str]]) -> None:
        self.function: Callable[[str], Any] = function
        self.name = getattr(function, "__name__", type(function).__name__)
        self._warned = False

    async def act(self, conversation: Conversation) -> Completion:
        began = perf_counter()
        answer = self.function(text_of(conversation.observation))
        if perf_counter() - began > LONGEST_HOLD:
            self._warn(perf_counter() - began)
        if inspect.isawaitable(answer):
            answer = await answer
        if not isinstance(answer, str):
            raise PolicyError(f"{self.name} returned a {type(answer).__name__}, a policy returns text")
        return Completion(answer)

    def _warn(self, seconds: float) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the policy {self.name}() held the event loop for {seconds * 1000:.0f} ms, and with it every other episode. "
                f"Make it `async def`, or pass `lambda text: asyncio.to_thread({self.name}, text)`.",
                HeldLoop,
                stacklevel=2,
            )


class HumanPolicy:
    """A person at a terminal. ``show`` prints an observation and ``ask`` returns what was typed; both are replaceable."""

    name = "human"

    def __init__(self, ask: Callable[[], str] = input, show: Callable[[str], None] = print) -> None:
        self._ask = ask
        self._show = show

    async def act(self, conversation: Conversation) -> Completion:
        # Blocks on purpose: there is one episode, and it waits for this person.
        self._show(text_of(conversation.observation))
        return Completion(self._ask())


def as_policy(policy: Policy | Callable[[str], Any] | str) -> Policy:
    """A policy from a policy, a callable, or the words ``random`` and ``oracle``."""
    if isinstance(policy, str):
        if policy not in ("random", "oracle"):
            raise UsageError(
                f'no policy is called "{policy}"; there are "random" and "oracle", or pass an object or a function'
            )
        return RandomPolicy() if policy == "random" else OraclePolicy()
    if isinstance(policy, type) and hasattr(policy, "act"):
        raise UsageError(f"a policy is an object, got the class {policy.__name__}: pass {policy.__name__}()")
    if hasattr(policy, "act"):
        return policy
    if callable(policy):
        return CallablePolicy(policy)
    raise UsageError(f"a policy has an async act() method or is a function of text, got {type(policy).__name__}")


def policy_name(policy: Policy) -> str:
    """What to call ``policy`` in a trajectory."""
    return str(getattr(policy, "name", type(policy).__name__))
