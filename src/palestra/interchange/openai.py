"""JSONL for fine-tuning chat models, as OpenAI's API defines it and most other trainers read it.

One line per episode: ``{"messages": [{"role": …, "content": …}, …]}``. If an episode had tools, their schemas are under
``tools`` and their calls are native function calls. A line ends with the last message of the policy. The format has no rewards,
tokens or reasoning. Failed episodes are left out.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from palestra.errors import SchemaError
from palestra.foundation.encoding import encode_json
from palestra.interchange.dialogue import content_of_parts, messages_of, trajectory_of
from palestra.policies.chat_wire import wire_messages
from palestra.trajectory import Message, Task, ToolCall, ToolResult, Trajectory
from palestra.trajectory.calls import format_call, format_result

__all__ = ["read_openai", "write_openai"]

ENV = "import:openai"


def write_openai(trajectories: Iterable[Trajectory], out: Path) -> int:
    """Write the conversations of all episodes that did not fail, and return their number."""
    written = 0
    with open(out, "wb") as file:
        for trajectory in trajectories:
            if trajectory.stop.failed or not trajectory.turns:
                continue
            file.write(encode_json(_record(trajectory)) + b"\n")
            written += 1
    return written


def _record(trajectory: Trajectory) -> dict[str, Any]:
    tools = trajectory.info.get("tools")
    lent = isinstance(tools, list) and bool(tools)
    record: dict[str, Any] = {"messages": wire_messages(messages_of(trajectory, final=False), native=lent)}
    return {**record, "tools": [_tool(tool) for tool in tools or ()]} if lent else record


def _tool(schema: dict[str, Any]) -> dict[str, Any]:
    return schema if "function" in schema else {"type": "function", "function": schema}


class _ChatFunction(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _ChatCall(msgspec.Struct):
    function: _ChatFunction
    id: str = ""


class _ChatMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_ChatCall] = []
    tool_call_id: str = ""
    reasoning_content: str | None = None


class _ChatRecord(msgspec.Struct):
    messages: list[_ChatMessage]
    tools: list[dict[str, Any]] = []


_ROLES: dict[str, Literal["system", "tool"]] = {"developer": "system", "function": "tool"}


def read_openai(path: Path) -> Iterator[Trajectory]:
    """Yield the conversations of a JSONL file, without scores; line n becomes the task with seed n."""
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if line.strip():
                yield _trajectory(line, number, path)


def _trajectory(line: bytes, number: int, path: Path) -> Trajectory:
    try:
        record = msgspec.json.decode(line, type=_ChatRecord)
        trajectory = trajectory_of(_messages(record.messages), Task(ENV, number))
    except (msgspec.MsgspecError, LookupError, TypeError, SchemaError) as error:
        raise SchemaError(f"{path}, line {number + 1} is not a fine-tuning example: {error}") from None
    return msgspec.structs.replace(trajectory, info={**trajectory.info, "tools": record.tools}) if record.tools else trajectory


def _messages(messages: list[_ChatMessage]) -> Iterator[Message]:
    names: dict[str, str] = {}
    for message in messages:
        names |= {call.id: call.function.name for call in message.tool_calls}
        yield _message(message, names.get(message.tool_call_id, ""))


def _message(message: _ChatMessage, answering: str) -> Message:
    content = content_of_parts(message.content)
    if message.tool_calls:
        calls = "\n".join(
            format_call(ToolCall(call.function.name, msgspec.json.decode(call.function.arguments or "{}"), call.id))
            for call in message.tool_calls
        )
        content = f"{content}\n{calls}" if content else calls
    role: Any = _ROLES.get(message.role, message.role)
    if role == "tool" and isinstance(content, str):
        content = format_result(answering, ToolResult(content), message.tool_call_id)
    return Message(role, content, message.reasoning_content or "")
