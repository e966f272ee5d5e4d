"""The environment's tools for agents that speak MCP: the messages of the protocol, without a socket.

The tools are those that the environment offers (``info["tools"]``). The tool ``act`` takes any other action, such as a message
to a user or the final answer; an environment without tools has only ``act``. A call is one step of the environment.

**Once.** Every client has a session. A message that a client of the same session sends again, byte for byte, gets the answer of
the first one; the step is not taken twice. Ids of messages are unique within a session, so two calls never look the same.

**The end.** After the episode has ended, a call is answered with an error, and nothing reaches the environment.

**Memory.** Answers that are kept for repeated messages count as memory of the episode, and so do actions that wait.

The door speaks the versions of the protocol that begin with ``initialize``. Newer clients fall back to them.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from sys import getsizeof
from typing import Any, NamedTuple

import msgspec

from palestra.agents.holdings import CALL, REQUEST, Holdings
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import BadRequest, quoted
from palestra.agents.rendezvous import ActionAnswer
from palestra.trajectory import ToolCall
from palestra.trajectory.calls import format_call, parse_results

__all__ = ["DoorAnswer", "ToolDoor"]

_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
_SESSIONS = 64
"""Most sessions of one episode. Some agents open one per call and leave it open; above this number the oldest idle one ends."""
_ACT = {
    "name": "act",
    "description": "Send an action that is not one of the other tools: a message, or the answer.",
    "parameters": {
        "type": "object",
        "properties": {"action": {"type": "string", "description": "The action, as text."}},
        "required": ["action"],
    },
}

_OVER = "The episode has ended."
_NO_METHOD = -32601
_BAD_PARAMETERS = -32602


class DoorAnswer(NamedTuple):
    """The answer to one message."""

    body: bytes
    """Empty for a notification."""
    session: str = ""
    """The name of a new session."""


class _Message(msgspec.Struct):
    method: str = ""
    id: int | str | None = None
    params: dict[str, Any] = {}


class _Parameters(msgspec.Struct):
    name: str
    arguments: dict[str, Any] | None = None


class _Refused(Exception):
    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class ToolDoor:
    """The tools of one episode.

    Args:
        offered: Returns the schemas of the tools that the environment offers now.
        take: Takes an action in the environment and returns the observation, and whether the episode played the action.
        ended: Returns whether the episode has ended.
        held: Counts what the door keeps.
    """

    def __init__(
        self,
        offered: Callable[[], Sequence[Mapping[str, Any]]],
        take: Callable[[str], Awaitable[ActionAnswer]],
        ended: Callable[[], bool],
        held: Holdings,
        pending: int = GatewayLimits().pending,
    ) -> None:
        self._held = held
        self._pending = pending
        self._running = 0
        """Calls that wait for their step, those included whose client went away."""
        self._offered = offered
        self._take = take
        self._ended = ended
        self._sessions: dict[str, dict[bytes, asyncio.Task[bytes]]] = {}
        """Name of a session → its calls: digest of a message → the answer."""

    async def answer(self, body: bytes, session: str) -> DoorAnswer:
        """Answer one message of a client. Raise ``BadRequest`` if it is no message, or has no session."""
        try:
            message = msgspec.json.decode(body, type=_Message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise BadRequest(f"the body is not a message of MCP: {error}") from None
        if message.id is None or not message.method:
            return DoorAnswer(b"")  # a notification, or an answer to a request that the door never sends
        if message.method == "initialize":
            return DoorAnswer(_result(message, self._initialize(message.params)), self._enter())
        try:
            if message.method == "tools/call":
                return DoorAnswer(await self._once(message, body, session))
            if message.method == "tools/list":
                return DoorAnswer(_result(message, {"tools": [_listed(schema) for schema in self._tools().values()]}))
            if message.method == "ping":
                return DoorAnswer(_result(message, {}))
            raise _Refused(_NO_METHOD, f"there is no method {quoted(message.method)}")
        except _Refused as error:
            return DoorAnswer(_encode(message, error={"code": error.code, "message": str(error)}))

    def leave(self, session: str) -> None:
        """End a session. A step that it waits for is taken all the same."""
        for task in self._sessions.pop(session, {}).values():
            # The answer of a call that still waits is given back when it is there.
            task.add_done_callback(self._drop)

    def close(self) -> None:
        """Stop every call that still waits."""
        for session in list(self._sessions):
            for task in self._sessions[session].values():
                task.cancel()
            self.leave(session)

    def _drop(self, task: "asyncio.Task[bytes]") -> None:
        self._held.correct(-_kept(task))

    def _enter(self) -> str:
        if len(self._sessions) >= _SESSIONS:
            idle = [session for session, calls in self._sessions.items() if all(task.done() for task in calls.values())]
            if not idle:
                raise BadRequest(f"{_SESSIONS} MCP sessions of this episode wait", status=429, code="rate_limit_exceeded")
            self.leave(idle[0])
        name = secrets.token_hex(16)
        self._sessions[name] = {}
        return name

    @staticmethod
    def _initialize(parameters: Mapping[str, Any]) -> dict[str, Any]:
        wanted = parameters.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": "palestra", "version": "1"},
        }

    def _tools(self) -> dict[str, Mapping[str, Any]]:
        schemas = [schema.get("function", schema) for schema in self._offered()]
        return {"act": _ACT} | {schema["name"]: schema for schema in schemas}

    async def _once(self, message: _Message, body: bytes, session: str) -> bytes:
        calls = self._sessions.get(session)
        if calls is None:
            raise BadRequest("there is no such MCP session: initialize first", status=404 if session else 400)
        digest = hashlib.blake2b(body, digest_size=16).digest()
        task = calls.get(digest)
        if task is None:
            action, called = self._action(message.params)
            if self._ended():
                return _result(message, _text_content(_OVER, error=True))
            if self._running >= self._pending:
                text = f"{self._running} calls of this episode wait for their step, which is the limit (GatewayLimits.pending)"
                raise BadRequest(text, status=429, code="rate_limit_exceeded")
            waiting = REQUEST + 2 * getsizeof(action)
            self._held.take(waiting)
            self._running += 1
            task = calls[digest] = asyncio.ensure_future(self._step(message, action, called=called))

            def stepped(done: "asyncio.Task[bytes]") -> None:
                # An agent that went away leaves the failure of its call to the episode.
                self._running -= 1
                self._held.correct(_kept(done) - waiting)

            task.add_done_callback(stepped)
        # Shielded: the client may go away, and its retry finds the observation.
        return await asyncio.shield(task)

    def _action(self, parameters: Mapping[str, Any]) -> tuple[str, bool]:
        """Return the action of a call, and whether it calls a tool of the environment."""
        try:
            call = msgspec.convert(parameters, _Parameters)
        except msgspec.ValidationError as error:
            raise _Refused(_BAD_PARAMETERS, f"the call cannot be read: {error}") from None
        tools, arguments = self._tools(), call.arguments or {}
        if call.name not in tools:
            raise _Refused(_BAD_PARAMETERS, f"there is no tool {quoted(call.name)}; there are: {', '.join(tools)}")
        if tools[call.name] is not _ACT:
            return format_call(ToolCall(call.name, arguments)), True
        if not isinstance(arguments.get("action"), str):
            raise _Refused(_BAD_PARAMETERS, "the tool act needs the argument action, a text")
        return arguments["action"], False

    async def _step(self, message: _Message, action: str, *, called: bool) -> bytes:
        answer = await self._take(action)
        if not answer.played:  # it waited while another call ended the episode
            return _result(message, _text_content(_OVER, error=True))
        if not called:
            return _result(message, _text_content(answer.observation))
        results = parse_results(answer.observation)
        text = "\n".join(result.text for result in results)
        return _result(message, _text_content(text, error=not all(result.ok for result in results)))


def _kept(task: "asyncio.Task[bytes]") -> int:
    """The bytes of a call that has been answered, which is kept for repeated messages."""
    return CALL + (0 if task.cancelled() or task.exception() is not None else len(task.result()))


def _listed(schema: Mapping[str, Any]) -> dict[str, Any]:
    parameters = {"type": "object", **(schema.get("parameters") or {})}
    return {"name": schema["name"], "description": schema.get("description") or "", "inputSchema": parameters}


def _text_content(text: str, *, error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": error}


def _result(message: _Message, result: Any) -> bytes:
    return _encode(message, result=result)


def _encode(message: _Message, **content: Any) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, **content})
