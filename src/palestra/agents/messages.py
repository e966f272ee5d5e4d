"""One form for the calls of all agents: the three dialects are read into it, and their answers are written from it.

Agents change the form of a message when they send it back: another order of the keys in a tool call's arguments, text as a
string or as parts, ``developer`` instead of ``system``, other ids. None of this changes what the model sees. The ``key`` of a
message is the same for all these forms, so the gateway recognizes a conversation by its keys.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from palestra.calls import CLOSE, OPEN, format_result, read_arguments
from palestra.encoding import clean_text
from palestra.trajectory import Message, ToolResult

__all__ = [
    "AgentMessage",
    "AgentReply",
    "AgentRequest",
    "BadRequest",
    "Dialect",
    "FunctionCall",
    "Pieces",
    "ReplyFinish",
    "decode",
    "function_tool",
    "message",
    "neutral",
    "rendered",
    "stop_strings",
]

Role = Literal["system", "user", "assistant", "tool"]
ReplyFinish = Literal["stop", "stop_sequence", "length", "tool_calls"]
Pieces = dict[bytes, Any]
"""JSON of a message → the message. An agent sends its history with every call: each message is read once per episode."""


class BadRequest(Exception):
    """A request that cannot be answered as the agent asks: ``status`` and ``code`` go into the error of its dialect."""

    def __init__(self, text: str, *, status: int = 400, code: str = "invalid_request_error") -> None:
        super().__init__(text)
        self.status = status
        self.code = code


class FunctionCall(msgspec.Struct, frozen=True, gc=False):
    """A tool call as agents see it."""

    name: str
    arguments: str
    """JSON text."""
    id: str = ""


class AgentMessage(msgspec.Struct, frozen=True):
    """A message of a request. Make it with ``message``, which sets its key."""

    role: Role
    text: str
    calls: tuple[FunctionCall, ...]
    answers: str
    """The id of the call that a message of role ``tool`` answers."""
    key: bytes
    """Equal for all forms of a message that a model sees as the same."""
    error: bool = False
    """Whether a tool's answer is an error message."""


class AgentRequest(msgspec.Struct, frozen=True):
    """A call of an agent, whatever its dialect."""

    dialect: str
    model: str
    messages: tuple[AgentMessage, ...]
    """Without the leading system text."""
    system: str = ""
    """The leading system messages as one text."""
    tools: tuple[dict[str, Any], ...] = ()
    """In the form that chat templates take."""
    stream: bool = False
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: dict[str, float] = {}
    """``temperature``, ``top_p`` and ``top_k``, as far as the agent sets them."""
    ignored: tuple[str, ...] = ()
    """Parameters with an effect that the gateway cannot give them, such as ``logit_bias``."""
    calls_allowed: bool = True
    """False for ``tool_choice: none``."""
    details: dict[str, Any] = {}
    """What only the answer of this dialect needs."""


class AgentReply(msgspec.Struct, frozen=True):
    """The answer to a call, whatever its dialect."""

    id: str
    """Unique: 24 hexadecimal digits."""
    text: str
    calls: tuple[FunctionCall, ...] = ()
    reasoning: str = ""
    finish: ReplyFinish = "stop"
    stop: str = ""
    """The stop string that ended the reply."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    created: int = 0
    body: bytes = b""
    """The answer as another API sent it. Empty for a sampled reply."""


class Dialect(NamedTuple):
    """An API that agents speak."""

    name: str
    read: Callable[[bytes, Pieces], AgentRequest]
    """The body of a request → the request; raises ``BadRequest``."""
    answer: Callable[[AgentReply, AgentRequest], bytes]
    """The body of an answer without streaming."""
    events: Callable[[AgentReply, AgentRequest], Iterator[bytes]]
    """The server-sent events of an answer."""
    error: Callable[[BadRequest], bytes]
    """The body of a refusal."""
    ping: bytes
    """An event that clients ignore. It keeps the connection open while the model writes."""


# ------------------------------------------------------------------------------------------------------- reading requests


def message(
    role: Role, text: str, calls: tuple[FunctionCall, ...] = (), *, answers: str = "", error: bool = False
) -> AgentMessage:
    """Return the message with its key: role, stripped text, and calls with their arguments compared as JSON."""
    text = clean_text(text)
    content = f"{role}\0{text.strip()}\0{error:d}".encode()
    if calls:
        content += b"\0".join(call.name.encode() + b"\0" + _normal(call.arguments) for call in calls)
    return AgentMessage(role, text, calls, answers, hashlib.blake2b(content, digest_size=16).digest(), error)


def _normal(arguments: str) -> bytes:
    read = read_arguments(arguments or "{}")
    return msgspec.json.encode(read, order="deterministic") if isinstance(read, dict) else arguments.encode()


def decode(body: bytes | msgspec.Raw, kind: Any) -> Any:
    """Decode JSON into ``kind``; raise ``BadRequest`` if it does not fit."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadRequest(f"the request cannot be read: {error}") from None


def function_tool(name: str, description: str | None, parameters: Any) -> dict[str, Any]:
    """Return a tool in the form that chat templates take."""
    function = {"name": name, "description": description or "", "parameters": parameters or {"type": "object"}}
    return {"type": "function", "function": function}


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the stop strings of a request; empty ones are left out."""
    return tuple(one for one in ((stop,) if isinstance(stop, str) else stop or ()) if one)


def neutral(value: Any) -> bool:
    """Return whether a parameter has the value that changes nothing."""
    if isinstance(value, dict) and value.get("type") in ("text", "auto"):
        return True
    return value in (None, 0, "auto", "none") or value == {} or value == []


# ------------------------------------------------------------------------------------------------------------- rendering


def rendered(request: AgentRequest, messages: Sequence[AgentMessage] | None = None) -> list[Message]:
    """Return ``messages`` for a renderer; by default all of ``request``, its system text included."""
    shown = request.messages if messages is None else messages
    names: dict[str, str] = {}
    if any(one.role == "tool" for one in shown):
        names = {call.id: call.name for one in request.messages for call in one.calls if call.id}
    if messages is not None:
        return [_rendered(one, names) for one in messages]
    head = [Message("system", request.system)] if request.system else []
    return head + [_rendered(one, names) for one in request.messages]


def _rendered(one: AgentMessage, names: dict[str, str]) -> Message:
    if one.role == "tool":
        return Message("tool", format_result(names.get(one.answers, ""), ToolResult(one.text, not one.error), one.answers))
    if one.calls:
        return Message(one.role, "\n".join(part for part in (one.text, *map(_written, one.calls)) if part))
    return Message(one.role, one.text)


def _written(call: FunctionCall) -> str:
    # Line breaks inside the tags: templates that show calls as JSON write them like this.
    return f'{OPEN}\n{{"name": {msgspec.json.encode(call.name).decode()}, "arguments": {call.arguments or "{}"}}}\n{CLOSE}'
