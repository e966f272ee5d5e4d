"""Anthropic's Messages.

A user's message there may hold the results of several tools and text after them: to the model these are several messages. A
message of the assistant holds text, thinking and calls. Thinking that comes back is left out: the template decides about it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from palestra.agents.messages import (
    AgentMessage,
    AgentReply,
    AgentRequest,
    BadRequest,
    Dialect,
    FunctionCall,
    Pieces,
    decode,
    function_tool,
    leading_system,
    message,
    neutral,
    quoted,
    stop_strings,
)
from palestra.agents.sse import cut, event

__all__ = ["ANTHROPIC"]


class _Text(msgspec.Struct):
    type: str
    text: str = ""


class _Block(msgspec.Struct):
    type: str
    text: str = ""
    id: str = ""
    name: str = ""
    input: msgspec.Raw = msgspec.Raw(b"{}")
    tool_use_id: str = ""
    content: str | list[_Text] | None = None
    is_error: bool | None = None


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Block]


class _Tool(msgspec.Struct):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: str = ""
    system: str | list[_Text] | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")
    tool_choice: dict[str, Any] | None = None
    stream: bool | None = None
    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None


_SILENT = ("thinking", "redacted_thinking")


async def _read(data: bytes, pieces: Pieces) -> AgentRequest:
    body: _Body = decode(data, _Body)
    messages = await pieces.messages(body.messages, lambda raw: _messages(raw, pieces))
    leading = leading_system(messages)
    system = [_text(body.system), *(message.text for message in messages[:leading])]
    choice = (body.tool_choice or {}).get("type", "auto")
    return AgentRequest(
        dialect="anthropic",
        model=body.model,
        messages=tuple(messages[leading:]),
        system="\n\n".join(text for text in system if text),
        offered=pieces.tools(body.tools, _tools),
        stream=bool(body.stream),
        max_tokens=body.max_tokens,
        stop=stop_strings(body.stop_sequences),
        sampling={name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(body, name)) is not None},
        ignored=() if neutral(choice) else ("tool_choice",),
        calls_allowed=choice != "none",
    )


def _messages(raw: msgspec.Raw, pieces: Pieces) -> Iterable[AgentMessage]:
    body: _Message = decode(raw, _Message)
    if body.role not in ("user", "assistant", "system"):
        raise BadRequest(f"a message has the role {quoted(body.role)}; expected user or assistant")
    blocks = [_Block("text", text=body.content)] if isinstance(body.content, str) else body.content
    return (_assistant(blocks, pieces),) if body.role == "assistant" else _user(body.role, blocks)


def _assistant(blocks: list[_Block], pieces: Pieces) -> AgentMessage:
    for block in blocks:
        if block.type not in ("text", "tool_use", *_SILENT):
            raise _strange(block.type)
    pieces.check_calls(len([block for block in blocks if block.type == "tool_use"]))
    calls = tuple(
        FunctionCall(block.name, bytes(block.input).decode(), block.id) for block in blocks if block.type == "tool_use"
    )
    return message("assistant", "".join(block.text for block in blocks if block.type == "text"), calls)


def _user(role: str, blocks: list[_Block]) -> Iterator[AgentMessage]:
    """Yield the results of tools, and the texts between them."""
    texts: list[str] = []
    for block in blocks:
        if block.type == "text":
            texts.append(block.text)
        elif block.type == "tool_result":
            if texts:
                yield message("user", "".join(texts))
                texts = []
            yield message("tool", _text(block.content), answers=block.tool_use_id, error=bool(block.is_error))
        else:
            raise _strange(block.type)
    if texts or not blocks:
        yield message("system" if role == "system" else "user", "".join(texts))


def _strange(kind: str) -> BadRequest:
    return BadRequest(
        f"a message contains a block of type {quoted(kind)}; the gateway takes text and tools", code="unsupported"
    )


def _text(content: str | list[_Text] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type != "text":
            raise _strange(part.type)
    return "".join(part.text for part in content)


def _tools(raw: msgspec.Raw) -> list[dict[str, Any]]:
    tools: list[_Tool] = decode(raw, list[_Tool] | None) or []
    strange = [tool.type for tool in tools if tool.type not in (None, "custom")]
    if strange:
        raise BadRequest(f"tools of type {quoted(', '.join(map(str, strange)))} are not known here", code="unsupported")
    return [function_tool(tool.name, tool.description, tool.input_schema) for tool in tools]


# ------------------------------------------------------------------------------------------------------------------ answers

_STOPS = {"stop": "end_turn", "stop_sequence": "stop_sequence", "length": "max_tokens", "tool_calls": "tool_use"}


def _blocks(reply: AgentReply) -> list[dict[str, Any]]:
    texts = [{"type": "text", "text": reply.text}] if reply.text else []
    return texts + [_use(call, msgspec.Raw(call.arguments.encode())) for call in reply.calls]


def _use(call: FunctionCall, arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": arguments}


def _message_data(reply: AgentReply, request: AgentRequest, content: list[dict[str, Any]], *, done: bool) -> dict[str, Any]:
    usage = {"input_tokens": reply.prompt_tokens, "output_tokens": reply.completion_tokens if done else 0}
    return {
        "id": f"msg_{reply.id}",
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": content,
        "stop_reason": _STOPS[reply.finish] if done else None,
        "stop_sequence": (reply.stop or None) if done else None,
        "usage": {**usage, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }


def _answer(reply: AgentReply, request: AgentRequest) -> bytes:
    return msgspec.json.encode(_message_data(reply, request, _blocks(reply), done=True))


def _events(reply: AgentReply, request: AgentRequest) -> Iterator[bytes]:
    for data in _event_data(reply, request):
        yield event(data, data["type"])


def _event_data(reply: AgentReply, request: AgentRequest) -> Iterator[dict[str, Any]]:
    yield {"type": "message_start", "message": _message_data(reply, request, [], done=False)}
    index = 0
    if reply.text:
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        for piece in cut(reply.text):
            yield {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
        yield {"type": "content_block_stop", "index": 0}
        index = 1
    for number, call in enumerate(reply.calls, index):
        yield {"type": "content_block_start", "index": number, "content_block": _use(call, {})}
        for piece in cut(call.arguments):
            yield {"type": "content_block_delta", "index": number, "delta": {"type": "input_json_delta", "partial_json": piece}}
        yield {"type": "content_block_stop", "index": number}
    stop = {"stop_reason": _STOPS[reply.finish], "stop_sequence": reply.stop or None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": reply.completion_tokens}}
    yield {"type": "message_stop"}


_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


def _error(error: BadRequest) -> bytes:
    kind = "api_error" if error.status >= 500 else _KINDS.get(error.status, "invalid_request_error")
    return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": str(error)}})


ANTHROPIC = Dialect("anthropic", _read, _answer, _events, _error, event({"type": "ping"}, "ping"))
