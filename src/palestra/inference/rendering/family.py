"""The renderers of the ``renderers`` package, for the model families that it supports.

The package writes what the templates of these families write, parses their reasoning and their markup of tool calls, and knows
how each closes a turn that was cut. Tool calls and results enter in their canonical text form, and calls leave in it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palestra.core import Reply
from palestra.errors import MissingExtra, UsageError
from palestra.foundation.encoding import Ints, ints
from palestra.foundation.installation import how_to_install
from palestra.inference.rendering.results import result_chats
from palestra.inference.rendering.shown import shown_text
from palestra.trajectory import Message, ToolCall
from palestra.trajectory.calls import format_call, parse_calls

__all__ = ["FamilyRenderer", "family_of"]


def _package() -> Any:
    try:
        import renderers
    except ImportError as error:
        raise MissingExtra(
            f"rendering by model family needs the package renderers: {how_to_install('render')} ({error})"
        ) from None
    return renderers


def family_of(tokenizer: Any) -> str | None:
    """Return the package's family for this tokenizer's model, or ``None``."""
    _package()
    from renderers.base import MODEL_RENDERER_MAP

    name: str | None = MODEL_RENDERER_MAP.get(getattr(tokenizer, "name_or_path", ""))
    return name


class FamilyRenderer:
    """Render with hand-written code for one model family (``qwen3``, ``llama-3``, ``glm-5``, ``gpt-oss`` …)."""

    def __init__(
        self, tokenizer: Any, family: str, *, append_only: bool = False, tools: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        package = _package()
        try:
            config = package.config_from_name(family)
        except (KeyError, ValueError) as error:
            raise UsageError(f"the package renderers has no family {family!r}: {error}") from None
        if append_only:
            config = type(config)(**{**config.model_dump(exclude={"name"}), "thinking_retention": "all"})
        self.tokenizer = tokenizer
        self._family = family
        self.append_only = append_only
        # The package takes the functions themselves, without the layer around them.
        self._tools = [dict(tool.get("function", tool)) for tool in tools] or None
        try:
            self._inner = package.create_renderer(tokenizer, config)
        except AssertionError as error:
            raise UsageError(f"this tokenizer does not belong to the family {family!r}: {error}") from None
        self.stop_ids: tuple[int, ...] = tuple(self._inner.get_stop_token_ids())

    def with_tools(self, tools: Sequence[Mapping[str, Any]]) -> "FamilyRenderer":
        """Return a renderer whose prompts list ``tools``, each in the form that chat templates take."""
        return FamilyRenderer(self.tokenizer, self._family, append_only=self.append_only, tools=tools)

    def first(self, messages: Sequence[Message]) -> Ints:
        return ints(self._inner.render_ids(_chats(messages), tools=self._tools, add_generation_prompt=True))

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        if any(message.role not in ("user", "tool") for message in messages):
            return None
        recent, ids = self._recent(prompt).tolist(), sampled.tolist()
        bridged = self._inner.bridge_to_next_turn(recent, ids, _chats(messages), tools=self._tools)
        before = recent + ids
        # The package may cut a reply back to its last stop token. Then the history changed, which needs a new segment.
        if bridged is None or bridged.token_ids[: len(before)] != before:
            return None
        return ints(bridged.token_ids[len(before) :])

    def read(self, prompt: Ints, ids: Ints) -> Reply:
        parsed = self._inner.parse_response(ids.tolist(), tools=self._tools, prompt_ids=self._recent(prompt).tolist())
        calls = [
            format_call(ToolCall(call.name, call.arguments, call.id or ""))
            if call.name and isinstance(call.arguments, dict)
            else call.raw
            for call in parsed.tool_calls
        ]
        return Reply("\n".join(part for part in (parsed.content, *calls) if part), parsed.reasoning_content or "")

    def _recent(self, prompt: Ints) -> Ints:
        """Return the last turns of ``prompt``. Bridging needs no more, so its cost does not depend on the length."""
        stops = np.flatnonzero(np.isin(prompt[-4096:], self.stop_ids))
        return ints(prompt[-4096:][int(stops[-2]) :]) if len(stops) >= 2 else prompt


def _chats(messages: Sequence[Message]) -> list[dict[str, Any]]:
    chats: list[dict[str, Any]] = []
    for message in messages:
        chats += result_chats(shown_text(message.content)) if message.role == "tool" else [_chat(message)]
    return chats


def _chat(message: Message) -> dict[str, Any]:
    chat: dict[str, Any] = {"role": message.role, "content": shown_text(message.content)}
    if message.role == "assistant":
        parsed = parse_calls(chat["content"])
        good = [call for call in parsed.calls if isinstance(call, ToolCall)]
        if good and len(good) == len(parsed.calls):
            chat["content"] = parsed.prose
            chat["tool_calls"] = [_call(call) for call in good]
        if message.reasoning:
            chat["reasoning_content"] = message.reasoning
    return chat


def _call(call: ToolCall) -> dict[str, Any]:
    function = {"function": {"name": call.name, "arguments": call.arguments}}
    return {"id": call.id, **function} if call.id else function
