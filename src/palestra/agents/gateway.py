"""The gateway: agents call a model behind an API, and the gateway samples from an engine and records exact tokens.

It is an ASGI application for OpenAI's chat completions and Responses and Anthropic's Messages. Every episode has a key of 256
random bits, which the agent uses as its API key. The key alone decides which episode a call belongs to: the key of one episode
cannot reach another. All episodes have one address, because agent frameworks keep a pool of connections (and read all
certificates of the system) per address.

The engine does not stream. If the agent asks for a stream, the gateway sends the complete reply as events. While the model
writes, events that clients ignore keep the connection open.

::

    async with Gateway(engine, renderers).serving() as gateway:
        episode = gateway.open(seed=1)
        client = openai.AsyncOpenAI(base_url=episode.openai_url, api_key=episode.key)
        ...
        recording = await gateway.close(episode)
"""

import asyncio
import contextlib
import hashlib
import secrets
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from time import perf_counter
from typing import Any, NamedTuple, TypeVar

import msgspec

from palestra.agents.anthropic import ANTHROPIC
from palestra.agents.chat import CHAT
from palestra.agents.counting import GatewayMetrics
from palestra.agents.episode import BODY, AgentEpisode, CallBudget, CallName, SamplingRule
from palestra.agents.exchange import Exchange, Receive, Scope, Send, check_values, send_json, send_text
from palestra.agents.graph import Call, CallRole
from palestra.agents.holdings import REQUEST, Hold, Holdings
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import AgentReply, AgentRequest, BadRequest, Dialect, OfferedTools, quoted
from palestra.agents.passing import PassedEpisode
from palestra.agents.recording import Recording
from palestra.agents.responses import RESPONSES
from palestra.agents.threads import GatewayThreads
from palestra.agents.tooldoor import ToolDoor
from palestra.agents.upstream import Upstream, UpstreamCalls
from palestra.core import Engine, Renderer
from palestra.errors import PalestraError, UsageError
from palestra.foundation.telemetry.prometheus import CONTENT_TYPE

__all__ = ["Gateway", "OpenEpisode"]

_DIALECTS = {"/v1/chat/completions": CHAT, "/v1/responses": RESPONSES, "/v1/messages": ANTHROPIC}
_COUNT = "/v1/messages/count_tokens"
_Reply = TypeVar("_Reply")
_REMEMBERED = 16
"""Most sets of tools whose renderers are kept."""
_LARGE = 2**16
"""Bytes of a request that is read in steps, one such request of all episodes at a time."""
_LONGEST_HEADER = 255
"""Characters of a header that names a call or a session."""
_MCP = "/mcp"
_METRICS = "/metrics"
_POSTED = {*_DIALECTS, _COUNT, _MCP}


class OpenEpisode(NamedTuple):
    """An episode that an agent can call."""

    key: str
    """The agent's API key. It names the episode."""
    url: str
    """The address of the gateway; empty if the gateway is not served."""
    record: AgentEpisode

    @property
    def openai_url(self) -> str:
        """The ``base_url`` of OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def anthropic_url(self) -> str:
        """The ``base_url`` of Anthropic's clients."""
        return self.url

    @property
    def mcp_url(self) -> str:
        """The address of the environment's tools, for MCP clients that speak streamable HTTP."""
        return f"{self.url}{_MCP}"


class Gateway:
    """Answer agents from an engine, and record their calls.

    Args:
        engine: Samples the replies. With an ``Upstream`` the calls go to another API, and only their text is recorded.
        renderers: Returns the renderer for a tuple of tools, each in the form that chat templates take. An engine needs it.
        rule: How replies are sampled, and whether agents may change it.
        limits: Limits against clients that send too much or too slowly.
        model: The name of the model that ``/v1/models`` lists. Agents may send any name.
        metrics_key: The key that ``GET /metrics`` asks for. Without one there are no metrics.
    """

    def __init__(
        self,
        engine: Engine | Upstream,
        renderers: Callable[[tuple[dict[str, Any], ...]], Renderer] | None = None,
        *,
        rule: SamplingRule | None = None,
        limits: GatewayLimits | None = None,
        model: str = "policy",
        metrics_key: str = "",
    ) -> None:
        self._upstream = UpstreamCalls(engine) if isinstance(engine, Upstream) else None
        self._engine = None if isinstance(engine, Upstream) else engine
        if renderers is None and self._upstream is None:
            raise UsageError("a gateway with an engine needs renderers")
        self.rule = rule or SamplingRule()
        self.limits = limits or GatewayLimits()
        self.model = model
        self.metrics = GatewayMetrics()
        self._metrics_key = metrics_key
        self.url = ""
        """The address, while the gateway is served."""
        self._make_renderer: Callable[[tuple[dict[str, Any], ...]], Renderer] = renderers or _no_renderer
        self._renderers: OrderedDict[bytes, asyncio.Future[Renderer]] = OrderedDict()
        """Digest of a set of tools → its renderer, for which several episodes may wait."""
        self._episodes: dict[bytes, OpenEpisode] = {}
        """Digest of a key → its episode."""
        self.memory = Holdings.of_gateway(self.limits)
        """The bytes that the requests of all episodes make the gateway keep."""
        self._reading = asyncio.Lock()
        """Held while a large request is read."""
        self._pending: Counter[str] = Counter()
        self._threads = GatewayThreads()

    @property
    def engine(self) -> Engine:
        """The engine that samples the replies."""
        if self._engine is None:
            raise UsageError("this gateway passes calls on: it has no engine")
        return self._engine

    # ------------------------------------------------------------------------------------------------------------ episodes

    def open(self, *, seed: int = 0, budget: CallBudget | None = None, rule: SamplingRule | None = None) -> OpenEpisode:
        """Open an episode."""
        key = secrets.token_urlsafe(32)
        record = (
            AgentEpisode(
                self.engine,
                self._renderer,
                rule or self.rule,
                seed=seed,
                budget=budget,
                limits=self.limits,
                within=self.memory,
                threads=self._threads,
            )
            if self._upstream is None
            else PassedEpisode(self._upstream, budget=budget, limits=self.limits, within=self.memory, threads=self._threads)
        )
        opened = OpenEpisode(key, self.url, record)
        self._episodes[_digest(key)] = opened
        self.metrics.opened += 1
        return opened

    async def close(self, episode: OpenEpisode) -> Recording:
        """Seal the episode and return its recording. Its key is refused from now on."""
        try:
            recording = await episode.record.seal()
            self.metrics.closed(recording)
            return recording
        finally:
            self.forget(episode)

    def forget(self, episode: OpenEpisode) -> None:
        """Refuse the key of an episode from now on."""
        self._episodes.pop(_digest(episode.key), None)
        self._close_threads_if_unused()

    def __len__(self) -> int:
        return len(self._episodes)

    @contextlib.asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator["Gateway"]:
        """Serve on ``host`` and ``port`` for the length of the block; port 0 takes a free one."""
        from palestra.agents.server import served

        async with served(self, host, port, self.limits) as url:
            self.url = url
            try:
                yield self
            finally:
                self.url = ""
                self._close_threads_if_unused()

    def _close_threads_if_unused(self) -> None:
        # A gateway that is no server but an application in another one has no end: its threads end with its last episode.
        if not self.url and not self._episodes:
            self._threads.close()

    async def _renderer(self, offered: OfferedTools) -> Renderer:
        making = self._renderers.get(offered.digest)
        if making is None or (making.done() and (making.cancelled() or making.exception() is not None)):
            # A template is tried with the tools, which an agent may choose to be long.
            making = asyncio.ensure_future(self._threads.run(lambda: self._make_renderer(offered.tools)))
            making.add_done_callback(lambda done: done.cancelled() or done.exception())  # those who wait hear of a failure
            self._renderers[offered.digest] = making
            if len(self._renderers) > _REMEMBERED:
                self._renderers.popitem(last=False)
        self._renderers.move_to_end(offered.digest)
        return await asyncio.shield(making)  # the episode may end while others wait for the renderer

    # ---------------------------------------------------------------------------------------------------------------- ASGI

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, and count it."""
        if scope["type"] != "http":
            return
        # A client of Anthropic's that was given OpenAI's address repeats the version.
        path = scope["path"].replace("/v1/v1/", "/v1/", 1)
        if path == _METRICS:
            await self._expose(Exchange(scope, receive, send))
            return
        dialect = _DIALECTS.get(path, ANTHROPIC if path == _COUNT else CHAT)
        began = perf_counter()
        exchange = Exchange(scope, receive, send)
        try:
            await self._answer(exchange, path, dialect)
        except BadRequest as error:
            await send_json(exchange.send, error.status, dialect.error(error))
        except Exception:
            exchange.status = 500  # the server sends it
            raise
        finally:
            self.metrics.answered(path if path in _POSTED else "other", exchange.status, perf_counter() - began)

    async def _answer(self, exchange: Exchange, path: str, dialect: Dialect) -> None:
        method = exchange.scope["method"]
        episode = self._authorized(exchange.scope)
        if method == "GET" and path.startswith("/v1/models"):
            await send_json(exchange.send, 200, self._models(path))
            return
        if (method != "POST" and path != _MCP) or path not in _POSTED:
            raise BadRequest(f"there is no {method} {path} here", status=404, code="not_found")
        self._enter(episode)
        hold = Hold(episode.record.memory)
        try:
            hold.add(REQUEST)
            if path == _MCP:
                await _mcp(exchange, episode.record.door, self.limits, hold)
            else:
                await self._post(exchange, path, dialect, episode.record, hold)
        finally:
            hold.release()
            self._leave(episode)

    async def _expose(self, exchange: Exchange) -> None:
        """Answer Prometheus. Keys of episodes do not open the metrics, which cover all episodes."""
        given = exchange.header(b"authorization").partition(" ")[2].strip()
        if not self._metrics_key or not secrets.compare_digest(_digest(given), _digest(self._metrics_key)):
            await send_json(
                exchange.send, 401, CHAT.error(BadRequest("the key of the metrics is missing or wrong", status=401))
            )
            return
        await send_text(exchange.send, self.metrics.text(len(self)), CONTENT_TYPE)

    def _authorized(self, scope: Scope) -> OpenEpisode:
        headers = [(key, value.decode("latin-1")) for key, value in scope["headers"] if key in (b"authorization", b"x-api-key")]
        keys = [value.partition(" ")[2].strip() if key == b"authorization" else value.strip() for key, value in headers]
        episodes = [episode for key in keys if (episode := self._episodes.get(_digest(key))) is not None]
        if not episodes:
            raise BadRequest("the API key is not the key of an open episode", status=401, code="invalid_api_key")
        if any(other is not episodes[0] for other in episodes):
            raise BadRequest("the request has the API keys of two episodes", status=403, code="invalid_api_key")
        return episodes[0]

    def _enter(self, episode: OpenEpisode) -> None:
        if self._pending[episode.key] >= self.limits.pending:
            text = f"{self.limits.pending} requests of this episode are pending, which is the limit (GatewayLimits.pending)"
            raise BadRequest(text, status=429, code="rate_limit_exceeded")
        self._pending[episode.key] += 1

    def _leave(self, episode: OpenEpisode) -> None:
        self._pending[episode.key] -= 1
        if not self._pending[episode.key]:
            del self._pending[episode.key]

    def _models(self, path: str) -> bytes:
        model = {
            "id": self.model,
            "object": "model",
            "type": "model",
            "created": 0,
            "owned_by": "palestra",
            "display_name": self.model,
        }
        if path.rstrip("/") != "/v1/models":
            return msgspec.json.encode({**model, "id": path.removeprefix("/v1/models/")})
        return msgspec.json.encode({"object": "list", "data": [model], "has_more": False})

    async def _post(self, exchange: Exchange, path: str, dialect: Dialect, record: AgentEpisode, hold: Hold) -> None:
        body = await exchange.body(self.limits, hold)
        key = _short(exchange, b"idempotency-key")
        role = _role(exchange.header(b"x-palestra-role"))
        session = _short(exchange, b"x-session-id")
        pieces = record.pieces(dialect.name)
        async with record.reading:
            if len(body) <= _LARGE:
                await check_values(body, self.limits.values)
                request = await dialect.read(body, pieces)
            else:
                async with self._reading:
                    await check_values(body, self.limits.values)
                    await asyncio.sleep(0)
                    began = perf_counter()
                    try:
                        request = await dialect.read(body, pieces)
                    finally:
                        # A call passes the loop several times. It must not wait for a large request each time.
                        await asyncio.sleep(perf_counter() - began)
        hold.add(pieces.weight)
        request.check()
        if request.dialect == "responses":
            request = _continued(request, record)
            pieces.check_count(len(request.messages))
        if path == _COUNT:
            await send_json(exchange.send, 200, await self._reply(self._count(record, request, body)))
            return
        if self._upstream is not None:
            request = msgspec.structs.replace(request, details={**request.details, BODY: body})
        name = CallName(hashlib.blake2b(path.encode() + body, digest_size=16).digest(), key)
        name = name._replace(retry=exchange.header(b"x-stainless-retry-count") not in ("", "0"))
        record.session_id = record.session_id or session
        if request.stream:
            answering = asyncio.ensure_future(record.answer(request, pieces, name, role))
            # A client that stalls is given up before the reply is there; the failure of the reply is then its own matter.
            answering.add_done_callback(lambda done: done.cancelled() or done.exception())
            with contextlib.suppress(TimeoutError):
                await self._stream(exchange, request, dialect, answering, hold)
        else:
            reply, call = await self._reply(record.answer(request, pieces, name, role))
            answer = reply.body or dialect.answer(reply, request)
            hold.add(2 * len(answer))
            with contextlib.suppress(TimeoutError):
                await exchange.deliver(answer, call, self.limits.write_seconds)

    async def _count(self, record: AgentEpisode, request: AgentRequest, body: bytes) -> bytes:
        if record.sealed or record.spent:
            what = "the episode has ended" if record.sealed else "the budget of this episode is used up"
            raise BadRequest(what, code="episode_ended")
        if self._upstream is not None:
            return await self._upstream.post(_COUNT.removeprefix("/v1"), body)
        return msgspec.json.encode({"input_tokens": await record.count(request)})

    async def _reply(self, answering: Awaitable[_Reply]) -> _Reply:
        """Wait for the reply; turn every failure into an answer that the agent's SDK understands."""
        try:
            return await answering
        except BadRequest:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # the server ends, not the episode
            raise BadRequest("the episode has ended", status=409, code="episode_ended") from error
        except PalestraError as error:
            raise BadRequest(f"the model could not answer: {error}", status=500, code="engine_error") from error
        except Exception as error:
            # The error itself stays here: it may hold paths or data of other episodes.
            raise BadRequest(f"the model could not answer: {type(error).__name__}", status=500, code="engine_error") from error

    async def _stream(
        self,
        exchange: Exchange,
        request: AgentRequest,
        dialect: Dialect,
        answering: "asyncio.Future[tuple[AgentReply, Call | None]]",
        hold: Hold,
    ) -> None:
        limits = self.limits
        # Until the first ping is due an error can still have its own status.
        await asyncio.wait([answering], timeout=limits.ping_seconds)
        if answering.done():
            reply, call = await self._reply(answering)
            events = _events(dialect, reply, request, hold)
            await exchange.start()
        else:
            await exchange.start()
            while not answering.done():
                await exchange.write(dialect.ping, limits.write_seconds)
                await asyncio.wait([answering], timeout=limits.ping_seconds)
            try:
                reply, call = await self._reply(answering)
                events = _events(dialect, reply, request, hold)
            except BadRequest as error:
                failed = b"event: error\ndata: " + dialect.error(error) + b"\n\n"
                exchange.status = error.status
                await exchange.write(failed, limits.write_seconds, last=True)
                return
        await exchange.deliver_stream(events, call, limits.write_seconds)


def _events(dialect: Dialect, reply: AgentReply, request: AgentRequest, hold: Hold) -> bytes:
    """Return the events of a reply, which ``hold`` counts until the client has taken them."""
    events = b"".join(dialect.events(reply, request))
    hold.add(2 * len(events))
    return events


def _short(exchange: Exchange, name: bytes) -> str:
    """Return a header that the episode remembers."""
    value = exchange.header(name)
    if len(value) > _LONGEST_HEADER:
        text = f"the header {name.decode()} has {len(value)} characters; at most {_LONGEST_HEADER} are taken"
        raise BadRequest(text, status=431, code="too_large")
    return value


def _no_renderer(tools: tuple[dict[str, Any], ...]) -> Renderer:
    raise UsageError("calls that are passed on are not rendered")


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "replace")).digest()


def _role(header: str) -> CallRole | None:
    if not header:
        return None
    try:
        return CallRole(header)
    except ValueError:
        raise BadRequest(f"x-palestra-role is {quoted(header)}; expected one of {', '.join(CallRole)}") from None


def _continued(request: AgentRequest, record: AgentEpisode) -> AgentRequest:
    """Return ``request`` with the conversation of the earlier answer that it names."""
    previous = request.details.get("previous")
    if not previous:
        return request
    earlier = record.stored.get(str(previous).removeprefix("resp_"))
    if earlier is None:
        raise BadRequest(
            f"there is no answer {quoted(str(previous))} in this episode", status=404, code="previous_response_not_found"
        )
    return msgspec.structs.replace(request, messages=(*earlier, *request.messages))


async def _mcp(exchange: Exchange, door: ToolDoor | None, limits: GatewayLimits, hold: Hold) -> None:
    """Answer one message of an MCP client. The server has no stream of its own, which GET would open."""
    if door is None:
        raise BadRequest("this episode offers no tools", status=404, code="not_found")
    session = exchange.header(b"mcp-session-id")
    if exchange.scope["method"] == "DELETE":
        door.leave(session)
        await send_json(exchange.send, 200, b"{}")
        return
    if exchange.scope["method"] != "POST":
        raise BadRequest("messages are sent with POST", status=405, code="method_not_allowed")
    body = await exchange.body(limits, hold)
    await check_values(body, limits.values)
    answer = await door.answer(body, session)
    hold.add(2 * len(answer.body))
    more = {b"mcp-session-id": answer.session.encode()} if answer.session else None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(limits.write_seconds):
            await send_json(exchange.send, 200 if answer.body else 202, answer.body, more)
