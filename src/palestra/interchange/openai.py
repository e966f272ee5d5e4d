"""JSONL for fine-tuning chat models, as OpenAI's API defines it and most other trainers read it.

One line an episode: ``{"messages": [{"role": …, "content": …}, …]}``. An episode that was lent tools has their schemas under
``tools`` and its calls as native function calls. It ends with what the policy wrote last. Rewards, tokens and reasoning have no
place in the format. Episodes that failed are left out: they are no example of anything.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from palestra.calls import format_call
from palestra.encoding import encode_json
from palestra.errors import SchemaError
from palestra.interchange.dialogue import content_of_parts, messages_of, trajectory_of
from palestra.policies.chat_wire import wire_messages
from palestra.trajectory import Message, Task, ToolCall, Trajectory

__all__ = ["read_openai", "write_openai"]

ENV = "import:openai"


def write_openai(trajectories: Iterable[Trajectory], out: Path) -> int:
    """Write the conversations of all that did not fail; how many that were."""
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


class _Function(msgspec.Struct):
    name: str
    arguments: str = "{}"


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _Message(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[_Call] = []
    reasoning_content: str | None = None


class _Record(msgspec.Struct):
    messages: list[_Message]
    tools: list[dict[str, Any]] = []


_ROLES: dict[str, Literal["system", "tool"]] = {"developer": "system", "function": "tool"}


def read_openai(path: Path) -> Iterator[Trajectory]:
    """The conversations of a JSONL file, without scores; line n is the task with seed n."""
    with open(path, "rb") as file:
        for number, line in enumerate(file):
            if line.strip():
                yield _trajectory(line, number, path)


def _trajectory(line: bytes, number: int, path: Path) -> Trajectory:
    try:
        record = msgspec.json.decode(line, type=_Record)
        found = trajectory_of([_message(one) for one in record.messages], Task(ENV, number))
    except (msgspec.MsgspecError, LookupError, TypeError, SchemaError) as error:
        raise SchemaError(f"{path}, line {number + 1} is no fine-tuning example: {error}") from None
    return msgspec.structs.replace(found, info={**found.info, "tools": record.tools}) if record.tools else found


def _message(message: _Message) -> Message:
    content = content_of_parts(message.content)
    if message.tool_calls:
        calls = "\n".join(
            format_call(ToolCall(call.function.name, msgspec.json.decode(call.function.arguments or "{}"), call.id))
            for call in message.tool_calls
        )
        content = f"{content}\n{calls}" if content else calls
    role: Any = _ROLES.get(message.role, message.role)
    return Message(role, content, message.reasoning_content or "")
