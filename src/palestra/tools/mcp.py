"""Tools of an MCP server, over its standard streams or streamable HTTP, on the official SDK.

One ``McpServer`` serves many episodes. Each episode has its own session, which its first call opens and which closes with the
episode, so episodes cannot see each other. The number of open sessions is limited. With ``shared=True``, for servers without
state, sessions are kept and used for the next episode.

The server is not trusted: only allowed tools can be called, and each tool is pinned by a hash of its name, description and
schema. If a later session shows another hash, the server has changed the tool, and the episode fails.
"""

import asyncio
import contextlib
import hashlib
import importlib
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from palestra.errors import InfrastructureError, MissingExtra, SchemaError, ToolError, UsageError
from palestra.foundation.encoding import encode_json
from palestra.foundation.installation import how_to_install
from palestra.trajectory import ToolResult

__all__ = ["McpServer", "McpTool"]


@dataclass(frozen=True, kw_only=True)
class _Described:
    """A tool as a server describes it."""

    name: str
    description: str
    parameters: Mapping[str, Any]

    @property
    def pin(self) -> str:
        written = encode_json((self.name, self.description, self.parameters))
        return f"sha256:{hashlib.sha256(written).hexdigest()}"


@dataclass(kw_only=True)
class McpServer:
    """One server: either a ``command`` to start, or a ``url`` to connect to."""

    command: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the command, besides common ones such as ``PATH``. It gets no other variable of this process."""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    allow: Collection[str] | None = None
    """The tools that exist for us; all of them if ``None``."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Tool → hash, from an earlier ``pins_of()``. Tools without one are pinned by what the first session shows."""
    sessions: int = 32
    """How many may be open at a time."""
    shared: bool = False
    """Pass sessions on from episode to episode."""

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise UsageError("an MCP server is either a command to start or a url to connect to")
        self._slots = asyncio.Semaphore(self.sessions)
        self._idle: list[_Session] = []
        self._open: set[_Session] = set()
        self._known: dict[str, _Described] = {}

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown: the values of headers and variables, and the words in them."""
        values = [*self.headers.values(), *self.environment.values()]
        return tuple(sorted({part for value in values for part in (value, *value.split())}, key=len, reverse=True))

    async def __aenter__(self) -> "McpServer":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def tools(self) -> "list[McpTool]":
        """The allowed tools, checked against their pins."""
        session = await self.take()
        await self.give_back(session)
        missing = set(self.allow or ()) - set(self._known)
        if missing:
            raise UsageError(
                f"the MCP server has no tool {', '.join(sorted(missing))}; it has {', '.join(self._known) or 'none'}"
            )
        return [McpTool(self, described) for described in self._known.values()]

    async def pins_of(self) -> dict[str, str]:
        """Today's hashes, to be written down and given as ``pins`` tomorrow."""
        await self.tools()
        return {name: described.pin for name, described in self._known.items()}

    async def take(self) -> "_Session":
        """A session: one that is idle, or a new one whose tools have been compared with the pins."""
        await self._slots.acquire()
        try:
            while self._idle:
                session = self._idle.pop()
                if session.usable:
                    return session
                await self._end(session)
            session = _Session(self._client)
            self._open.add(session)
            try:
                await session.start()
                self._check(await session.described())
            except BaseException:
                await self._end(session)
                raise
            return session
        except BaseException:
            self._slots.release()
            raise

    async def give_back(self, session: "_Session") -> None:
        """End a session, or keep it for the next one where sessions are shared."""
        self._slots.release()
        if self.shared and session.usable:
            self._idle.append(session)
        else:
            await self._end(session)

    async def close(self) -> None:
        """End every session."""
        self._idle.clear()
        for session in list(self._open):
            await self._end(session)

    async def _end(self, session: "_Session") -> None:
        self._open.discard(session)
        await session.end()

    def _check(self, described: Sequence[_Described]) -> None:
        offered = {tool.name: tool for tool in described if self.allow is None or tool.name in self.allow}
        for name, tool in offered.items():
            expected = self.pins.get(name) or (self._known[name].pin if name in self._known else tool.pin)
            if tool.pin != expected:
                raise SchemaError(f"the tool {name!r} of the MCP server is not the one that was pinned: it has been changed")
        if self._known and offered.keys() != self._known.keys():
            raise SchemaError("the MCP server offers other tools than it did: it has been changed")
        self._known = offered

    def _client(self) -> Any:
        return _part("mcp", "Client")(_over_http(self.url, dict(self.headers)) if self.url else _over_stdio(self))


@contextlib.asynccontextmanager
async def _over_http(url: str, headers: dict[str, str]) -> AsyncIterator[Any]:
    transport = "mcp.client.streamable_http"
    async with (
        _part(transport, "create_mcp_http_client")(headers=headers) as http,
        _part(transport, "streamable_http_client")(url, http_client=http) as streams,
    ):
        yield streams


@contextlib.asynccontextmanager
async def _over_stdio(server: McpServer) -> AsyncIterator[Any]:
    program, *arguments = server.command
    parameters = _part("mcp", "StdioServerParameters")(command=program, args=arguments, env=dict(server.environment))
    with open(os.devnull, "w") as nowhere:  # noqa: ASYNC230 - what a server writes to standard error is not ours to print
        async with _part("mcp", "stdio_client")(parameters, errlog=nowhere) as streams:
            yield streams


def _part(module: str, name: str) -> Any:
    """Something of the SDK, loaded when it is first needed."""
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError:
        raise MissingExtra(f"MCP tools need the mcp package: {how_to_install('mcp')}") from None


class _Session:
    """One connection. The SDK wants it opened and closed by the same task, so a task of its own does both."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self._connect = connect
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self.broken = False
        """A call failed or was given up: what the server is doing now is its secret."""

    @property
    def usable(self) -> bool:
        """Whether another call can be made."""
        return not self.broken and self._task is not None and not self._task.done()

    async def start(self) -> None:
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(ready))
        self._client = await ready

    async def _live(self, ready: "asyncio.Future[Any]") -> None:
        try:
            async with self._connect() as client:
                if not ready.done():
                    ready.set_result(client)
                await self._stop.wait()
        except MissingExtra as error:
            ready.set_exception(error)
        except Exception as error:  # noqa: BLE001 - the mcp package raises errors and groups of many kinds
            self.broken = True
            if not ready.done():
                # Only the kind: the message may hold an address or a header.
                ready.set_exception(InfrastructureError(f"the MCP server could not be reached: {_kind(error)}"))

    async def described(self) -> list[_Described]:
        """The server's tools. A server that does not list them is out of order."""
        try:
            return await self._describe()
        except Exception as error:  # noqa: BLE001 - the mcp package raises errors and groups of many kinds
            raise InfrastructureError(f"the MCP server did not list its tools: {_kind(error)}") from None

    async def _describe(self) -> list[_Described]:
        described: list[_Described] = []
        cursor: str | None = None
        while True:
            page = await self._client.list_tools(cursor=cursor)
            described += [
                _Described(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor:
                return described

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        try:
            result = await self._client.call_tool(name, dict(arguments))
        except BaseException:
            self.broken = True
            raise
        text = "\n".join(_text_of(block) for block in result.content)
        return ToolResult(text, ok=not result.is_error)

    async def end(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.wait({self._task})


class McpTool:
    """One tool of a server."""

    def __init__(self, server: McpServer, described: _Described) -> None:
        self.name = described.name
        self.description = described.description
        self.parameters = described.parameters
        self.pin = described.pin
        self.server = server

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        return self.server.secrets

    def for_episode(self, shared: MutableMapping[Any, Any]) -> "_EpisodeTool":
        """The tool as one episode uses it; all tools of one server share the episode's session."""
        return _EpisodeTool(self, shared.setdefault(id(self.server), _EpisodeSession(self.server)))

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        session = _EpisodeSession(self.server)
        try:
            return await session.call(self.name, arguments)
        finally:
            await session.close()


class _EpisodeSession:
    """The session of one episode, opened when it is first needed and again when it broke."""

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._sessions: list[_Session] = []
        """The last is in use. Those before it broke, but other calls may still wait for their answers."""
        self._opening = asyncio.Lock()
        self.waiting_since: float | None = None
        """The loop's time since when the episode has waited for this one session: for its turn, or for the server to start."""

    async def call(self, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        async with self._opening:
            if not self._sessions or not self._sessions[-1].usable:
                self._sessions.append(await self._taken())
            session = self._sessions[-1]
        return await session.call(name, arguments)

    async def _taken(self) -> _Session:
        self.waiting_since = asyncio.get_running_loop().time()
        try:
            return await self._server.take()
        except SchemaError as error:
            raise ToolError(str(error)) from None  # not for the agent: the episode must not obey the new text
        finally:
            self.waiting_since = None

    async def close(self) -> None:
        sessions, self._sessions = self._sessions, []
        for session in sessions:
            await self._server.give_back(session)


class _EpisodeTool:
    """One tool in one episode."""

    def __init__(self, tool: McpTool, session: _EpisodeSession) -> None:
        self.name, self.description, self.parameters, self.secrets = tool.name, tool.description, tool.parameters, tool.secrets
        self._session = session

    @property
    def waiting_since(self) -> float | None:
        """Since when the episode has waited for the server's session."""
        return self._session.waiting_since

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        return await self._session.call(self.name, arguments)

    async def close(self) -> None:
        await self._session.close()


def _text_of(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and getattr(block.resource, "text", None) is not None:
        return str(block.resource.text)
    return f"[{block.type}]"


def _kind(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__
