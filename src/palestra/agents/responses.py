"""OpenAI's Responses.

A reply of the model is several items there: a message, and one item per tool call. Consecutive items of the assistant are one
message to the model. ``previous_response_id`` names an earlier answer of the same episode; ``details["previous"]`` holds it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from palestra.agents.chat import openai_error
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
)
from palestra.agents.sse import cut, event

__all__ = ["RESPONSES"]


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: str | list[_Part] | None = None
    call_id: str = ""
    name: str = ""
    arguments: str = ""
    output: str | list[_Part] | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Body(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b'""')
    model: str = ""
    instructions: str | None = None
    tools: msgspec.Raw = msgspec.Raw(b"null")
    tool_choice: Any = None
    stream: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    previous_response_id: str | None = None
    text: dict[str, Any] | None = None
    conversation: Any = None
    background: bool | None = None


_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_SILENT = ("reasoning", "item_reference")
"""Items that a model does not see as text of the conversation."""


async def _read(data: bytes, pieces: Pieces) -> AgentRequest:
    body: _Body = decode(data, _Body)
    if body.background or body.conversation is not None:
        raise BadRequest("background and conversation are not available here; send the whole input", code="unsupported")
    items: str | list[msgspec.Raw] = decode(body.input, str | list[msgspec.Raw])
    if isinstance(items, str):
        messages = await pieces.messages([body.input], _user_text)
    else:
        messages = _joined(await pieces.messages(items, _items_of))
    leading = leading_system(messages)
    system = [body.instructions or "", *(message.text for message in messages[:leading])]
    form = (body.text or {}).get("format")
    ignored = [name for name, value in (("text.format", form), ("tool_choice", body.tool_choice)) if not neutral(value)]
    return AgentRequest(
        dialect="responses",
        model=body.model,
        messages=tuple(messages[leading:]),
        system="\n\n".join(text for text in system if text),
        offered=pieces.tools(body.tools, _tools),
        stream=bool(body.stream),
        max_tokens=body.max_output_tokens,
        sampling={name: value for name in ("temperature", "top_p") if (value := getattr(body, name)) is not None},
        ignored=tuple(ignored),
        calls_allowed=body.tool_choice != "none",
        details={
            "previous": body.previous_response_id,
            "instructions": body.instructions,
            "tools": msgspec.Raw(bytes(body.tools)),
        },
    )


def _user_text(raw: msgspec.Raw) -> tuple[AgentMessage, ...]:
    return (message("user", decode(raw, str)),)


def _items_of(raw: msgspec.Raw) -> tuple[AgentMessage, ...]:
    """Return the message of an item; nothing for an item that the model does not see."""
    item: _Item = decode(raw, _Item)
    if item.type == "message":
        role = _ROLES.get(item.role)
        if role is None:
            raise BadRequest(f"a message has the role {quoted(item.role)}; expected one of {', '.join(_ROLES)}")
        return (message(role, _text(item.content)),)  # type: ignore[arg-type]  # from _ROLES
    if item.type == "function_call":
        return (message("assistant", "", (FunctionCall(item.name, item.arguments, item.call_id),)),)
    if item.type == "function_call_output":
        return (message("tool", _text(item.output), answers=item.call_id),)
    if item.type in _SILENT:
        return ()
    raise BadRequest(
        f"the input contains an item of type {quoted(item.type)}, which cannot be shown to the model", code="unsupported"
    )


def _text(content: str | list[_Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in ("input_text", "output_text", "text", "refusal"):
            raise BadRequest(
                f"the input contains a part of type {quoted(part.type)}; the gateway takes text only", code="unsupported"
            )
    return "".join(part.text or part.refusal for part in content)


def _joined(items: Sequence[AgentMessage]) -> list[AgentMessage]:
    """Join a message of the assistant with the calls that follow it: the model wrote both in one reply."""
    replies: list[list[AgentMessage]] = []
    for item in items:
        if item.role == "assistant" and item.calls and replies and replies[-1][0].role == "assistant":
            replies[-1].append(item)
        else:
            replies.append([item])
    return [reply[0] if len(reply) == 1 else _one_reply(reply) for reply in replies]


def _one_reply(items: Sequence[AgentMessage]) -> AgentMessage:
    return message("assistant", items[0].text, tuple(call for item in items for call in item.calls))


def _tools(raw: msgspec.Raw) -> list[dict[str, Any]]:
    tools: list[_Tool] = decode(raw, list[_Tool] | None) or []
    strange = [tool.type for tool in tools if tool.type != "function"]
    if strange:
        raise BadRequest(
            f"tools of type {quoted(', '.join(strange))} are not known; the gateway takes functions", code="unsupported"
        )
    return [function_tool(tool.name, tool.description, tool.parameters) for tool in tools]


# ------------------------------------------------------------------------------------------------------------------ answers


def _message_item(reply: AgentReply, *, done: bool = True) -> dict[str, Any]:
    part = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
    status = "completed" if done else "in_progress"
    return {
        "type": "message",
        "id": f"msg_{reply.id}",
        "role": "assistant",
        "status": status,
        "content": [part] if done else [],
    }


def _call_item(reply: AgentReply, index: int, *, done: bool = True) -> dict[str, Any]:
    call = reply.calls[index]
    return {
        "type": "function_call",
        "id": f"fc_{reply.id}{index}",
        "call_id": call.id,
        "name": call.name,
        "arguments": call.arguments if done else "",
        "status": "completed" if done else "in_progress",
    }


def _items(reply: AgentReply) -> list[dict[str, Any]]:
    messages = [_message_item(reply)] if reply.text or not reply.calls else []
    return messages + [_call_item(reply, index) for index in range(len(reply.calls))]


def _response_data(reply: AgentReply, request: AgentRequest, status: str, output: list[dict[str, Any]]) -> dict[str, Any]:
    cut = status == "incomplete"
    total = reply.prompt_tokens + reply.completion_tokens
    usage = {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": reply.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": total,
    }
    tools = request.details.get("tools", msgspec.Raw(b"null"))
    return {
        "id": f"resp_{reply.id}",
        "object": "response",
        "created_at": reply.created,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": request.details.get("instructions"),
        "max_output_tokens": request.max_tokens,
        "metadata": {},
        "model": request.model,
        "output": output,
        "parallel_tool_calls": True,
        "previous_response_id": request.details.get("previous"),
        "temperature": request.sampling.get("temperature", 1.0),
        "tool_choice": "auto",
        "tools": [] if bytes(tools) == b"null" else tools,
        "top_p": request.sampling.get("top_p", 1.0),
        "usage": None if status == "in_progress" else usage,
    }


def _status(reply: AgentReply) -> str:
    return "incomplete" if reply.finish == "length" else "completed"


def _answer(reply: AgentReply, request: AgentRequest) -> bytes:
    return msgspec.json.encode(_response_data(reply, request, _status(reply), _items(reply)))


def _events(reply: AgentReply, request: AgentRequest) -> Iterator[bytes]:
    for number, data in enumerate(_event_data(reply, request)):
        yield event({**data, "sequence_number": number}, data["type"])


def _event_data(reply: AgentReply, request: AgentRequest) -> Iterator[dict[str, Any]]:
    begun = _response_data(reply, request, "in_progress", [])
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    index = 0
    if reply.text or not reply.calls:
        yield from _text_data(reply)
        index = 1
    for number in range(len(reply.calls)):
        yield from _call_data(reply, number, index + number)
    status = _status(reply)
    yield {"type": f"response.{status}", "response": _response_data(reply, request, status, _items(reply))}


def _text_data(reply: AgentReply) -> Iterator[dict[str, Any]]:
    item = _message_item(reply)
    (part,) = item["content"]
    at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    yield {"type": "response.output_item.added", "output_index": 0, "item": _message_item(reply, done=False)}
    yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
    for piece in cut(reply.text):
        yield {"type": "response.output_text.delta", **at, "delta": piece, "logprobs": []}
    yield {"type": "response.output_text.done", **at, "text": reply.text, "logprobs": []}
    yield {"type": "response.content_part.done", **at, "part": part}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}


def _call_data(reply: AgentReply, number: int, index: int) -> Iterator[dict[str, Any]]:
    item = _call_item(reply, number)
    at = {"item_id": item["id"], "output_index": index}
    yield {"type": "response.output_item.added", "output_index": index, "item": _call_item(reply, number, done=False)}
    for piece in cut(item["arguments"]):
        yield {"type": "response.function_call_arguments.delta", **at, "delta": piece}
    done = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": "response.function_call_arguments.done", **at, **done}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


RESPONSES = Dialect("responses", _read, _answer, _events, openai_error, b": waiting for the model\n\n")
