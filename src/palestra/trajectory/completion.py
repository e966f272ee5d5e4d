"""Input and output of a policy: messages, tool calls, and completions with the tokens behind them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from palestra.foundation.encoding import Floats, Ints, clean_text
from palestra.trajectory.content import Content

__all__ = ["Completion", "Finish", "Message", "Tokens", "ToolCall", "ToolResult", "Usage", "observed", "opening_of"]


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One message of a conversation, as a chat template sees it."""

    role: Literal["system", "user", "assistant", "tool"]
    """``tool`` marks an observation that answers tool calls; ``palestra.trajectory.calls.parse_results`` reads its text."""
    content: Content
    reasoning: str = ""
    """The thinking before an assistant's content, for models that keep the two apart."""


def observed(content: Content, info: Mapping[str, Any]) -> Message:
    """Return the message for an observation; ``info`` comes from the same ``reset`` or ``step``."""
    return Message("tool" if info.get("role") == "tool" else "user", content)


def opening_of(info: Mapping[str, Any]) -> list[Message]:
    """Return the messages before the first observation; ``info`` comes from ``reset``.

    Raises:
        ValueError: ``info["opening"]`` is not a list of ``{"role": "system", "user" or "assistant", "content": text}``.
    """
    if "opening" not in info:
        return []
    opening = info["opening"]
    try:
        messages = [(message["role"], message["content"]) for message in opening]
        sound = all(role in ("system", "user", "assistant") and isinstance(text, str) for role, text in messages)
    except (TypeError, KeyError):
        sound = False
    if not sound:
        raise ValueError(
            f'info["opening"] must be a list of {{"role": "system", "user" or "assistant", "content": TEXT}}, '
            f"got {opening!r:.200}"
        )
    return [Message(role, text) for role, text in messages]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A tool call that was parsed from the model's text."""

    name: str
    arguments: dict[str, Any]
    id: str = ""


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer of a tool. ``ok`` is false if ``text`` is an error message for the model."""

    text: str
    ok: bool = True
    source: str = ""
    """Where the answer comes from, such as the content hash of a search index; recorded in the step's ``info``."""


class Finish(StrEnum):
    """Why sampling stopped."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """The turn reached its token limit."""
    OVERFLOW = "overflow"
    """The prompt left no room in the context to sample."""
    EMPTY = "empty"
    """The engine returned no token."""
    BUDGET = "budget"
    """The run's budget was spent, so no call was made."""


class Tokens(msgspec.Struct, frozen=True):
    """The exact token ids that the engine received and sampled. They are never made by tokenizing text again."""

    prompt: Ints
    ids: Ints
    logprobs: Floats
    """Log-probability of each of ``ids`` under the distribution that it was sampled from."""
    version: int = 0
    """Version of the weights that sampled the first of these tokens."""
    updates: tuple[tuple[int, int], ...] = ()
    """``(index, version)`` per change of weights during the completion: ``version`` sampled ``ids[index]`` and later."""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} sampled ids but {len(self.logprobs)} log-probs")
        bounds = [0, *(index for index, _ in self.updates), len(self.ids)]
        if self.updates and bounds != sorted(bounds):
            raise ValueError(f"updates {self.updates} are out of order or outside {len(self.ids)} sampled ids")

    @property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """``(start, stop, version)`` of each part of ``ids`` that one version sampled; together they cover ``ids``."""
        starts = [0, *(index for index, _ in self.updates)]
        stops = [*starts[1:], len(self.ids)]
        versions = [self.version, *(version for _, version in self.updates)]
        return tuple(run for run in zip(starts, stops, versions, strict=True) if run[0] < run[1])


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """The cost of a completion."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0
    retries: dict[str, int] = {}
    """Number of failed calls before the successful one, by reason (``429``, ``timeout``)."""


class Completion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Text that the policy wrote. The environment receives exactly ``text`` as its action."""

    text: str
    finish: Finish = Finish.STOP
    reasoning: str = ""
    tokens: Tokens | None = None
    """Removed when the turn is recorded: a trajectory keeps tokens only in its segments."""
    notes: tuple[Tokens, ...] = ()
    """Tokens sampled before this action, such as a summary of the history. Removed like ``tokens``."""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if not self.text.isascii():
            msgspec.structs.force_setattr(self, "text", clean_text(self.text))
        if not self.reasoning.isascii():
            msgspec.structs.force_setattr(self, "reasoning", clean_text(self.reasoning))
