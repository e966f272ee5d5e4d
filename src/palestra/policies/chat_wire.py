"""OpenAI's chat-completions format: Palestra's messages to requests, and answers to completions.

A tool call is text in our messages (``<tool_call>{…}</tool_call>``). On the wire it is a native function call where tools were
offered to the endpoint, and stays text where they were not. An observation that answers native calls is sent as one result per
call, in the order of the calls, each with the id of its call.
"""

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from palestra.core import Tool
from palestra.errors import PolicyError
from palestra.trajectory import Content, Image, Message, Text, ToolCall, text_of
from palestra.trajectory.calls import format_call, parse_calls, parse_results

__all__ = ["ChatAnswer", "is_overflow", "read_answer", "tool_specs", "wire_messages"]


class _WireFunction(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] = ""


class _WireCall(msgspec.Struct):
    function: _WireFunction
    id: str | None = None


class _WireReply(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_WireCall] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    message: _WireReply
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Body(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class ChatAnswer(msgspec.Struct):
    """An answer of the endpoint in our words."""

    text: str
    reasoning: str
    cut: bool
    """The token limit ended it."""
    prompt_tokens: int
    completion_tokens: int
    retries: dict[str, int] = {}
    """Why earlier calls for this answer failed → how many."""


_decoder = msgspec.json.Decoder(_Body)


def read_answer(data: bytes) -> ChatAnswer:
    """Return the answer in the body of a successful call."""
    try:
        body = _decoder.decode(data)
        choice = body.choices[0]
    except (msgspec.MsgspecError, IndexError) as error:
        # Without its cause: that may have a context that quotes the answer with the key still in it (``ChatPolicy._read``).
        raise PolicyError(f"the endpoint did not answer with a chat completion: {error}; got {data[:300]!r}") from None
    reply, usage = choice.message, body.usage or _Usage()
    calls = [format_call(_canonical(call)) for call in reply.tool_calls or ()]
    return ChatAnswer(
        text="\n".join(part for part in (reply.content or reply.refusal or "", *calls) if part),
        reasoning=reply.reasoning_content or reply.reasoning or "",
        cut=choice.finish_reason == "length",
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
    )


def _canonical(call: _WireCall) -> ToolCall:
    arguments = call.function.arguments
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
        except msgspec.MsgspecError:
            # Not an object: kept as it was written, for the tool's own complaint.
            arguments = {"arguments": arguments}
    return ToolCall(call.function.name, arguments, call.id or "")


def is_overflow(data: bytes) -> bool:
    """Whether a refusal says that the conversation is too long for the model."""
    text = data.decode("utf-8", "replace").lower()
    return (
        "context_length_exceeded" in text or "context length" in text or "context window" in text or "too many tokens" in text
    )


def tool_specs(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Tools as the endpoint wants them described."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)},
        }
        for tool in tools
    ]


def wire_messages(messages: Sequence[Message], *, native: bool) -> list[dict[str, Any]]:
    """Our messages as the endpoint wants them; ``native`` turns the text of calls into function calls."""
    out: list[dict[str, Any]] = []
    unanswered: list[str] = []
    for message in messages:
        if message.role == "assistant":
            wire, unanswered = (
                _reply(message, len(out)) if native else ({"role": "assistant", "content": _content(message.content)}, [])
            )
            out.append(wire)
        elif unanswered:
            out += _answers(message, unanswered)
            unanswered = []
        else:
            role = "user" if message.role == "tool" else message.role
            out.append({"role": role, "content": _content(message.content)})
    return out


def _answers(message: Message, calls: list[str]) -> list[dict[str, Any]]:
    """``message`` as the results of ``calls``: exactly one per call, which is what the API accepts."""
    text = text_of(message.content)
    told = [result.full_text for result in parse_results(text)] if message.role == "tool" else [text]
    if len(told) > len(calls):
        told[len(calls) - 1 :] = ["\n".join(told[len(calls) - 1 :])]
    told += ["See the result before this one."] * (len(calls) - len(told))
    return [{"role": "tool", "tool_call_id": call, "content": content} for call, content in zip(calls, told, strict=True)]


def _reply(message: Message, position: int) -> tuple[dict[str, Any], list[str]]:
    text = text_of(message.content)
    prose, parsed = parse_calls(text)
    calls = [call for call in parsed if isinstance(call, ToolCall)]
    if not calls or len(calls) < len(parsed):
        return {"role": "assistant", "content": text}, []
    names = [call.id or f"call_{position}_{number}" for number, call in enumerate(calls)]
    native = [
        {
            "id": name,
            "type": "function",
            "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
        }
        for name, call in zip(names, calls, strict=True)
    ]
    return {"role": "assistant", "content": prose or None, "tool_calls": native}, names


def _content(content: Content) -> Any:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    data = base64.b64encode(part.data).decode()
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}
