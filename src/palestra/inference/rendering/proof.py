"""Test a renderer on its tokenizer at start-up, and name the first promise that it breaks.

The test takes a few milliseconds. It finds errors that otherwise show only as a model that does not learn.
"""

from typing import Any

import numpy as np

from palestra.core import Renderer
from palestra.errors import UsageError
from palestra.foundation.encoding import Ints, ints
from palestra.trajectory import Message, ToolResult
from palestra.trajectory.calls import format_result

__all__ = ["prove"]

_TALK = [Message("user", "What is 2 + 3?")]
_REPLIES = ("5", "It is 5.\n\nSure?", "  \\boxed{5} ", "⑤ is five")
_SUMS = [format_result(name, ToolResult(text)) for name, text in (("add", '{"sum": 7}'), ("python", "7"))]
_NEXT = (Message("user", "And 3 + 4?"), Message("tool", _SUMS[0]), Message("tool", "\n".join(_SUMS)))


def prove(renderer: Renderer, tokenizer: Any) -> None:
    """Raise ``UsageError`` naming the first promise that ``renderer`` breaks."""
    if not renderer.stop_ids:
        raise UsageError("the renderer has no stop token, so every reply would run into the length limit")
    prompt = renderer.first(_TALK)
    if not len(prompt):
        raise UsageError("first() returned no ids for a conversation of one user message")
    for reply in _REPLIES:
        sampled = ints(tokenizer.encode(reply, add_special_tokens=False))
        for following in _NEXT:
            _check_turn(renderer, tokenizer, prompt, sampled, following)
        _check_reading(renderer, tokenizer, prompt, sampled)


def _check_turn(renderer: Renderer, tokenizer: Any, prompt: Ints, sampled: Ints, following: Message) -> None:
    stop = ints([renderer.stop_ids[0]])
    closed = renderer.extend(prompt, _joined(sampled, stop), [following])
    cut = renderer.extend(prompt, sampled, [following])
    if closed is None or cut is None:
        return  # the template rewrites history here: a new segment starts, and there is no prefix to keep
    if not np.array_equal(cut[-len(closed) :], closed):
        raise UsageError(
            f"a {following.role} message continues a reply that was cut with {tokenizer.decode(cut.tolist())!r} and one that "
            f"ended by itself with {tokenizer.decode(closed.tolist())!r}: the second must be the end of the first"
        )
    if not np.isin(cut, renderer.stop_ids).any():
        raise UsageError(f"the prefix property fails: a reply that was cut is not closed before a {following.role} message")
    reply = Message("assistant", tokenizer.decode(sampled.tolist()))
    rendered = renderer.first([*_TALK, reply, following])
    if not np.array_equal(rendered[-len(closed) :], closed):
        raise UsageError(
            f"the prefix property fails: rendered whole, the conversation ends in {rendered[-len(closed) :].tolist()}, and "
            f"turn by turn in {closed.tolist()} ({tokenizer.decode(closed.tolist())!r}): this tokenizer does not cut "
            f"at the stop token"
        )


def _check_reading(renderer: Renderer, tokenizer: Any, prompt: Ints, sampled: Ints) -> None:
    text = renderer.read(prompt, _joined(sampled, ints([renderer.stop_ids[0]]))).text
    stop = tokenizer.decode([renderer.stop_ids[0]])
    if stop and stop in text:
        raise UsageError(f"the stop token {stop!r} shows up in the text of a reply: {text!r}")


def _joined(*parts: Ints) -> Ints:
    return ints(np.concatenate(parts))
