"""Calling a policy, whatever the form of its ``act``: plain or ``async def``, with a ``Completion`` or a ``str`` as its result.

Everything that runs a policy calls ``next_completion``; nothing else awaits ``act``.
"""

import inspect
import warnings
from time import perf_counter
from types import CoroutineType
from typing import Any

from palestra.adapters.direct import LONGEST_HOLD
from palestra.core import Conversation, Policy
from palestra.errors import EventLoopBlocked, PolicyError
from palestra.trajectory import Completion

__all__ = ["is_privileged", "next_completion", "policy_name"]

_warned: set[tuple[type, str]] = set()


def policy_name(policy: Policy) -> str:
    """Return the name of ``policy`` in trajectories and reports: its ``name``, or that of its class."""
    return str(getattr(policy, "name", type(policy).__name__))


def is_privileged(policy: Policy) -> bool:
    """Return whether ``policy`` declares access to the environment (``privileged = True`` on its class)."""
    return bool(getattr(policy, "privileged", False))


async def next_completion(policy: Policy, conversation: Conversation) -> Completion:
    """Ask ``policy`` for its next action.

    Raises:
        PolicyError: ``act`` returned neither a ``Completion`` nor text.
    """
    answer = first_answer(policy, conversation)
    return completion_of(policy, await answer if is_awaitable(answer) else answer)


def first_answer(policy: Policy, conversation: Conversation) -> Any:
    """Call ``act``, and return what is to be awaited, or the answer of a plain ``act``."""
    began = perf_counter()
    answer: Any = policy.act(conversation)
    # The call of a plain act did the work itself, and every other episode waited for it.
    if type(answer) is not CoroutineType and perf_counter() - began > LONGEST_HOLD:
        _warn(policy, perf_counter() - began)
    return answer


def is_awaitable(answer: Any) -> bool:
    """Whether ``first_answer`` returned something to be awaited."""
    kind = type(answer)
    return kind is CoroutineType or (kind is not Completion and inspect.isawaitable(answer))


def completion_of(policy: Policy, answer: Any) -> Completion:
    """The completion that ``policy`` answered; ``PolicyError`` if it is neither a ``Completion`` nor text."""
    if isinstance(answer, Completion):
        return answer
    if isinstance(answer, str):
        return Completion(answer)
    raise PolicyError(f"the policy {policy_name(policy)} returned a {type(answer).__name__}; expected text or a Completion")


def _warn(policy: Policy, seconds: float) -> None:
    name = policy_name(policy)
    if (type(policy), name) in _warned:
        return
    _warned.add((type(policy), name))
    warnings.warn(
        f"the policy {name} held the event loop for {seconds * 1000:.0f} ms, and every other episode waited for it. "
        f"Make it `async def`, or do the slow part with `await asyncio.to_thread(…)`.",
        EventLoopBlocked,
        stacklevel=3,
    )
