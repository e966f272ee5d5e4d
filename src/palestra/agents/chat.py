"""OpenAI's chat completions."""

from collections.abc import Iterator
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
from palestra.agents.sse import DONE, cut, event

__all__ = ["CHAT", "openai_error"]


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    refusal: str = ""


class _Function(msgspec.Struct):
    name: str
    arguments: str = ""


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    role: str
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str = ""


class _ToolFunction(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _Tool(msgspec.Struct):
    type: str
    function: _ToolFunction | None = None


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Body(msgspec.Struct):
    messages: list[msgspec.Raw]
    model: str = ""
    tools: msgspec.Raw = msgspec.Raw(b"null")
    tool_choice: Any = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    stop: str | list[str] | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    response_format: dict[str, Any] | None = None
    logprobs: bool | None = None


_UNSUPPORTED = ("presence_penalty", "frequency_penalty", "logit_bias", "response_format")
_ROLES = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}


async def _read(data: bytes, pieces: Pieces) -> AgentRequest:
    body: _Body = decode(data, _Body)
    if body.n not in (None, 1):
        raise BadRequest(f"n is {body.n}; the gateway samples one reply per call: send a call for each", code="unsupported")
    messages = await pieces.messages(body.messages, lambda raw: (_parsed(decode(raw, _Message), pieces),))
    leading = leading_system(messages)
    return AgentRequest(
        dialect="chat",
        model=body.model,
        messages=tuple(messages[leading:]),
        system="\n\n".join(message.text for message in messages[:leading]),
        offered=pieces.tools(body.tools, _tools),
        stream=bool(body.stream),
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        stop=stop_strings(body.stop),
        sampling={name: value for name in ("temperature", "top_p", "top_k") if (value := getattr(body, name)) is not None},
        ignored=_ignored(body),
        calls_allowed=body.tool_choice != "none",
        details={"usage": bool(body.stream_options and body.stream_options.include_usage)},
    )


def _ignored(body: _Body) -> tuple[str, ...]:
    names = [name for name in _UNSUPPORTED if not neutral(getattr(body, name))]
    return (*names, *([] if neutral(body.tool_choice) else ["tool_choice"]))


def _parsed(body: _Message, pieces: Pieces) -> AgentMessage:
    role = _ROLES.get(body.role)
    if role is None:
        raise BadRequest(f"a message has the role {quoted(body.role)}; expected one of {', '.join(_ROLES)}")
    pieces.check_calls(len(body.tool_calls or ()))
    calls = tuple(FunctionCall(call.function.name, call.function.arguments, call.id) for call in body.tool_calls or ())
    return message(role, _text(body.content), calls, answers=body.tool_call_id)  # type: ignore[arg-type]  # from _ROLES


def _text(content: str | list[_Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    for part in content:
        if part.type not in ("text", "refusal"):
            raise BadRequest(
                f"a message contains a part of type {quoted(part.type)}; the gateway takes text only", code="unsupported"
            )
    return "".join(part.text or part.refusal for part in content)


def _tools(raw: msgspec.Raw) -> list[dict[str, Any]]:
    tools: list[_Tool] = decode(raw, list[_Tool] | None) or []
    strange = [tool.type for tool in tools if tool.function is None]
    if strange:
        raise BadRequest(
            f"tools of type {quoted(', '.join(strange))} are not known; the gateway takes functions", code="unsupported"
        )
    functions = [tool.function for tool in tools if tool.function is not None]
    return [function_tool(function.name, function.description, function.parameters) for function in functions]


# ------------------------------------------------------------------------------------------------------------------ answers


def _finish(reply: AgentReply) -> str:
    return "stop" if reply.finish == "stop_sequence" else reply.finish


def _usage(reply: AgentReply) -> dict[str, int]:
    total = reply.prompt_tokens + reply.completion_tokens
    return {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens, "total_tokens": total}


def _answer(reply: AgentReply, request: AgentRequest) -> bytes:
    answer: dict[str, Any] = {"role": "assistant", "content": reply.text or (None if reply.calls else ""), "refusal": None}
    if reply.calls:
        answer["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.calls
        ]
    if reply.reasoning:
        answer["reasoning_content"] = reply.reasoning
    return msgspec.json.encode(
        {
            "id": f"chatcmpl-{reply.id}",
            "object": "chat.completion",
            "created": reply.created,
            "model": request.model,
            "choices": [{"index": 0, "message": answer, "finish_reason": _finish(reply), "logprobs": None}],
            "usage": _usage(reply),
        }
    )


def _events(reply: AgentReply, request: AgentRequest) -> Iterator[bytes]:
    base = {"id": f"chatcmpl-{reply.id}", "object": "chat.completion.chunk", "created": reply.created, "model": request.model}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        return event({**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}]})

    yield chunk({"role": "assistant", "content": None if reply.calls else ""})
    for part in cut(reply.reasoning):
        yield chunk({"reasoning_content": part})
    for part in cut(reply.text):
        yield chunk({"content": part})
    for index, call in enumerate(reply.calls):
        opened = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
        yield chunk({"tool_calls": [opened]})
        for part in cut(call.arguments):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": part}}]})
    yield chunk({}, _finish(reply))
    if request.details.get("usage"):
        yield event({**base, "choices": [], "usage": _usage(reply)})
    yield DONE


def openai_error(error: BadRequest) -> bytes:
    """Return the body of a refusal in OpenAI's form."""
    kind = "server_error" if error.status >= 500 else "invalid_request_error"
    return msgspec.json.encode({"error": {"message": str(error), "type": kind, "param": None, "code": error.code}})


CHAT = Dialect("chat", _read, _answer, _events, openai_error, b": waiting for the model\n\n")
