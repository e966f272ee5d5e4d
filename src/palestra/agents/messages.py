"""One form for the calls of all agents: the three dialects are read into it, and their answers are written from it.

Agents change the form of a message when they send it back: another order of the keys in a tool call's arguments, text as a
string or as parts, ``developer`` instead of ``system``, other ids. None of this changes what the model sees. The ``key`` of a
message is the same for all these forms, so the gateway recognizes a conversation by its keys.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from sys import getsizeof
from time import perf_counter
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from palestra.agents.limits import GatewayLimits
from palestra.foundation.encoding import clean_text
from palestra.trajectory import Message, ToolResult
from palestra.trajectory.calls import CLOSE, OPEN, format_result, read_arguments

__all__ = [
    "AgentMessage",
    "AgentReply",
    "AgentRequest",
    "BadRequest",
    "Dialect",
    "FunctionCall",
    "OfferedTools",
    "Pieces",
    "ReplyFinish",
    "decode",
    "function_tool",
    "leading_system",
    "message",
    "neutral",
    "quoted",
    "rendered",
    "stop_strings",
    "too_large",
    "weight_of",
]

Role = Literal["system", "user", "assistant", "tool"]
ReplyFinish = Literal["stop", "stop_sequence", "length", "tool_calls"]
_Read = TypeVar("_Read")
_ENTRY = 256
"""Bytes of an entry among the pieces of JSON that were read."""
_MESSAGE = 384
"""Bytes of a message that was read, beside its text: the message and its key."""
_CALLED = 256
"""Bytes of a tool call beside its text."""
_PER_BYTE = 32
"""Bytes that a byte of JSON takes at most as Python objects: three bytes are an empty object and its place in a list."""
_LONGEST_NAME = 256
_STOPS, _LONGEST_STOP = 64, 1024
_RANGES = {
    "temperature": (0.0, float("inf"), "0 or more"),
    "top_p": (0.0, 1.0, "a number from 0 to 1"),
    "top_k": (-1, float("inf"), "-1 or 0 for all tokens, or more"),
}
_TURN_SECONDS = 0.003
"""Seconds of reading messages after which the event loop gets its turn."""
_SHOWN = 100
"""Characters of what an agent sent that a refusal quotes."""


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


class OfferedTools(NamedTuple):
    """The tools of a request."""

    tools: tuple[dict[str, Any], ...] = ()
    """Each in the form that chat templates take."""
    digest: bytes = b""
    """Names the tools; empty if there are none."""


class Pieces:
    """The pieces of JSON that an episode has read before, and those that one request adds.

    An agent sends its history with every call: each message is read once per episode. What a request adds is kept apart until
    the request is answered, so that nothing stays of one that is refused.
    """

    def __init__(self, kept: dict[bytes, Any] | None = None, limits: GatewayLimits | None = None) -> None:
        self._kept = {} if kept is None else kept
        self._limits = limits or GatewayLimits()
        self.fresh: dict[bytes, Any] = {}
        """Digest of a piece of JSON → what was read from it, for pieces that are new."""
        self._weights: dict[bytes, int] = {}

    @property
    def weight(self) -> int:
        """Bytes that the new pieces take."""
        return sum(self._weights.values())

    async def messages(
        self, raws: Sequence[msgspec.Raw], read: Callable[[msgspec.Raw], Iterable[AgentMessage]]
    ) -> list[AgentMessage]:
        """Return the messages of ``raws``; ``read`` parses a piece that is new. The event loop gets its turns in between."""
        self.check_count(len(raws))
        messages: list[AgentMessage] = []
        until = perf_counter() + _TURN_SECONDS
        for raw in raws:
            digest = hashlib.blake2b(raw, digest_size=16).digest()
            parsed = self._get(digest)
            if parsed is None:
                fresh: list[AgentMessage] = []
                for message in read(raw):
                    fresh.append(message)
                    if perf_counter() > until:
                        await asyncio.sleep(0)
                        until = perf_counter() + _TURN_SECONDS
                parsed = tuple(fresh)
                self._add(digest, parsed, _ENTRY + sum(map(weight_of, parsed)))
            messages += parsed
            self.check_count(len(messages))
        return messages

    def tools(self, raw: msgspec.Raw, read: Callable[[msgspec.Raw], Sequence[dict[str, Any]]]) -> OfferedTools:
        """Return the tools of ``raw``. Requests with the same tools hold the same object."""
        size = memoryview(raw).nbytes
        if size > self._limits.tools:
            raise too_large(f"the list of tools has {size} bytes; at most {self._limits.tools} are taken (GatewayLimits.tools)")
        digest = hashlib.blake2b(raw, digest_size=16, person=b"tools").digest()
        offered: OfferedTools | None = self._get(digest)
        if offered is None:
            tools = tuple(read(raw))
            content = msgspec.json.encode(tools, order="deterministic")
            offered = OfferedTools(tools, hashlib.blake2b(content, digest_size=16).digest()) if tools else OfferedTools()
            self._add(digest, offered, _ENTRY + _PER_BYTE * size)
        return offered

    def check_count(self, count: int) -> None:
        """Raise ``BadRequest`` if a conversation may not have ``count`` messages."""
        if count > self._limits.messages:
            most = f"at most {self._limits.messages} are taken (GatewayLimits.messages)"
            raise too_large(f"the conversation has {count} messages or more; {most}")

    def check_calls(self, count: int) -> None:
        """Raise ``BadRequest`` if a message may not have ``count`` tool calls."""
        if count > self._limits.messages:
            most = f"at most {self._limits.messages} are taken (GatewayLimits.messages)"
            raise too_large(f"a message has {count} tool calls; {most}")

    def keep(self) -> int:
        """Keep the new pieces for later requests, and return how many bytes more are kept now."""
        added = sum(self._weights[digest] for digest in self.fresh if digest not in self._kept)
        self._kept.update(self.fresh)
        return added

    def _get(self, digest: bytes) -> Any:
        read = self._kept.get(digest)
        return self.fresh.get(digest) if read is None else read

    def _add(self, digest: bytes, read: Any, weight: int) -> None:
        self.fresh[digest] = read
        self._weights[digest] = weight


def weight_of(read: AgentMessage) -> int:
    """Return the bytes that a message takes. Text with one character outside of Latin-1 takes two or four bytes for each."""
    calls = sum(_CALLED + getsizeof(call.name) + getsizeof(call.arguments) + getsizeof(call.id) for call in read.calls)
    return _MESSAGE + getsizeof(read.text) + getsizeof(read.answers) + calls


def too_large(text: str) -> BadRequest:
    """Return the refusal of a request that exceeds a limit."""
    return BadRequest(text, status=413, code="too_large")


def quoted(text: str) -> str:
    """Return the first characters of what an agent sent, in quotes, for a refusal."""
    return repr(text[:_SHOWN])


class AgentRequest(msgspec.Struct, frozen=True):
    """A call of an agent, whatever its dialect."""

    dialect: str
    model: str
    messages: tuple[AgentMessage, ...]
    """Without the leading system text."""
    system: str = ""
    """The leading system messages as one text."""
    offered: OfferedTools = OfferedTools()
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
    """Fields that only the answer of this dialect needs."""

    def check(self) -> None:
        """Raise ``BadRequest`` if a parameter has a value that no API takes."""
        if len(self.model) > _LONGEST_NAME:
            raise BadRequest(f"the name of the model has {len(self.model)} characters; at most {_LONGEST_NAME} are taken")
        if len(self.stop) > _STOPS or any(len(text) > _LONGEST_STOP for text in self.stop):
            raise BadRequest(f"at most {_STOPS} stop strings of {_LONGEST_STOP} characters are taken")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise BadRequest(f"the most tokens of a reply are {self.max_tokens}; expected 1 or more")
        for name, (least, most, expected) in _RANGES.items():
            value = self.sampling.get(name)
            if value is not None and not least <= value <= most:
                raise BadRequest(f"{name} is {value}; expected {expected}")


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
    read: Callable[[bytes, Pieces], Awaitable[AgentRequest]]
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


def leading_system(messages: Sequence[AgentMessage]) -> int:
    """Return how many messages stand before the first one that is not system text."""
    return next((number for number, message in enumerate(messages) if message.role != "system"), len(messages))


def stop_strings(stop: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the stop strings of a request; empty ones are left out."""
    stops = (stop,) if isinstance(stop, str) else stop or ()
    return tuple(text for text in stops if text)


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
    if any(message.role == "tool" for message in shown):
        names = {call.id: call.name for message in request.messages for call in message.calls if call.id}
    system = [Message("system", request.system)] if request.system and messages is None else []
    return system + [_rendered(message, names) for message in shown]


def _rendered(message: AgentMessage, names: dict[str, str]) -> Message:
    if message.role == "tool":
        result = ToolResult(message.text, not message.error)
        return Message("tool", format_result(names.get(message.answers, ""), result, message.answers))
    if message.calls:
        return Message(message.role, "\n".join(part for part in (message.text, *map(_written, message.calls)) if part))
    return Message(message.role, message.text)


def _written(call: FunctionCall) -> str:
    # Line breaks inside the tags: templates that show calls as JSON write them like this.
    return f'{OPEN}\n{{"name": {msgspec.json.encode(call.name).decode()}, "arguments": {call.arguments or "{}"}}}\n{CLOSE}'
