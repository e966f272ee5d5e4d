"""A model behind another API: the gateway passes the agent's calls on, and records text, usage and cost.

The call goes to the same API that the agent speaks, as the agent wrote it: only the name of the model and ``stream`` change.
The API returns text and no token ids, so such episodes can be evaluated, viewed and exported, and not trained.

The agent never sees the key of the API, and the API never sees the key of the episode. A call that the network or the server
fails is repeated after growing pauses.
"""

import asyncio
from typing import Any

import aiohttp
import msgspec

from palestra.agents.messages import AgentReply, AgentRequest, BadRequest, FunctionCall, ReplyFinish
from palestra.errors import InfrastructureError, PolicyError
from palestra.foundation.confidential import mask_url
from palestra.foundation.resources.connections import Connections
from palestra.inference.endpoints import Address

__all__ = ["Upstream", "UpstreamCalls"]

_PATHS = {"chat": "/chat/completions", "responses": "/responses", "anthropic": "/messages"}
_AGAIN = (408, 409, 425, 429)
_MOST_BYTES = 32 * 2**20
"""The longest answer that is read: far above the longest reply of a model."""
_MOST_TOKENS = 2**53
"""No call has more tokens. Numbers up to here are exact as dollars, too."""
_MOST_WORDS = 300
"""Characters of an API's error that are shown."""
_FINISHES: dict[str | None, ReplyFinish] = {
    "length": "length",
    "max_tokens": "length",
    "incomplete": "length",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "stop_sequence": "stop_sequence",
}


class Upstream(Address, frozen=True, kw_only=True):
    """The address of a model behind an API.

    Example::

        Upstream("gpt-x", "https://api.example/v1", key_variable="EXAMPLE_KEY")
    """

    timeout: float = 300.0
    """Seconds per call."""
    attempts: int = 4
    """Attempts per call before the episode fails with ``InfrastructureError``."""
    first_pause: float = 0.5
    """Seconds before the second attempt; every further pause is twice as long."""


class UpstreamCalls:
    """Calls the API."""

    def __init__(self, upstream: Upstream) -> None:
        upstream.check()
        self.upstream = upstream
        self._connections = Connections(self._open)

    async def call(self, request: AgentRequest, body: bytes) -> AgentReply:
        """Pass a call on. ``body`` is the agent's own request."""
        answer = await self.post(_PATHS[request.dialect], body)
        try:
            reply = _checked(_READERS[request.dialect](msgspec.json.decode(answer)))
        except (msgspec.MsgspecError, LookupError, TypeError, AttributeError, ValueError, RecursionError) as error:
            raise PolicyError(f"{mask_url(self.upstream.base_url)} gave no answer of its API: {error!r}") from error
        return msgspec.structs.replace(reply, body=answer)

    async def post(self, path: str, body: bytes) -> bytes:
        """Post the agent's request to ``path`` and return the answer.

        Raises:
            BadRequest: The API refuses this request; the agent is answered the same.
            PolicyError: The API refuses the key, the model or the path, redirects the call, or answers without end.
            InfrastructureError: No attempt was answered.
        """
        sent = _sent(body, self.upstream.model)
        problem = ""
        for attempt in range(self.upstream.attempts):
            if attempt:
                await asyncio.sleep(self.upstream.first_pause * 2 ** (attempt - 1))
            try:
                session = await self._connections.session()
                url = self.upstream.base_url.rstrip("/") + path
                # A redirect would take the key to another server.
                async with session.post(url, data=sent, allow_redirects=False) as answer:
                    data = await self._read(answer)
            except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
                problem = str(error) or repr(error)
                continue
            if answer.status == 200:
                return data
            problem = f"{answer.status} {self._harmless(data)}"
            if answer.status not in _AGAIN and answer.status < 500:
                self._refuse(answer.status, problem)
        where = mask_url(self.upstream.base_url)
        raise InfrastructureError(f"{where}: {self.upstream.attempts} calls failed, the last one with: {problem}")

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        pieces, size = list[bytes](), 0
        async for piece in answer.content.iter_chunked(2**16):
            pieces.append(piece)
            size += len(piece)
            if size > _MOST_BYTES:
                raise PolicyError(f"{mask_url(self.upstream.base_url)} answered with more than {_MOST_BYTES} bytes")
        return b"".join(pieces)

    def _refuse(self, status: int, problem: str) -> None:
        if 300 <= status < 400 or status in (401, 403, 404):
            raise PolicyError(f"{mask_url(self.upstream.base_url)} refused the call: {problem}")
        long = "context_length" in problem or "context length" in problem or "prompt is too long" in problem
        raise BadRequest(problem, status=status, code="context_length_exceeded" if long else "invalid_request_error")

    def _harmless(self, data: bytes) -> str:
        # Masked before it is cut: a cut through the key would leave the first half of it.
        return self.upstream.without_secrets(data).decode("utf-8", "replace")[:_MOST_WORDS]

    def _open(self) -> aiohttp.ClientSession:
        session = self.upstream.session(self.upstream.timeout, key_headers=[("x-api-key", "")])
        session.headers["anthropic-version"] = "2023-06-01"
        return session


def _sent(body: bytes, model: str) -> bytes:
    fields: dict[str, Any] = msgspec.json.decode(body)
    # The reply is recorded before the agent gets it, and then sent to it as events.
    stream = {"stream": False} if fields.pop("stream", False) else {}
    fields.pop("stream_options", None)
    return msgspec.json.encode({**fields, **stream, "model": model})


# ------------------------------------------------------------------------------------------------------------------ answers


def _checked(reply: AgentReply) -> AgentReply:
    """Return ``reply`` if every field has its type."""
    return msgspec.convert(msgspec.to_builtins(reply), AgentReply)


def _tokens(usage: Any, name: str) -> int:
    """Return a number of tokens; 0 if the API does not count them. A negative one would undo the budget of the episode."""
    count = usage.get(name)
    if count is None:
        return 0
    if type(count) is not int or not 0 <= count <= _MOST_TOKENS:
        raise ValueError(f"{name} is {count!r}, which is not a number of tokens")
    return count


def _from_chat(body: Any) -> AgentReply:
    choice = body["choices"][0]
    answer, usage = choice["message"], body.get("usage") or {}
    calls = tuple(
        FunctionCall(call["function"]["name"], call["function"].get("arguments") or "{}", call.get("id") or "")
        for call in answer.get("tool_calls") or ()
    )
    return AgentReply(
        id=str(body["id"]).removeprefix("chatcmpl-"),
        text=answer.get("content") or answer.get("refusal") or "",
        calls=calls,
        reasoning=answer.get("reasoning_content") or answer.get("reasoning") or "",
        finish=_FINISHES.get(choice.get("finish_reason"), "stop"),
        prompt_tokens=_tokens(usage, "prompt_tokens"),
        completion_tokens=_tokens(usage, "completion_tokens"),
        created=int(body.get("created") or 0),
    )


def _from_responses(body: Any) -> AgentReply:
    items, usage = body["output"], body.get("usage") or {}
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    calls = tuple(
        FunctionCall(item["name"], item.get("arguments") or "{}", item["call_id"])
        for item in items
        if item["type"] == "function_call"
    )
    finish = _FINISHES.get(body.get("status"), "tool_calls" if calls else "stop")
    return AgentReply(
        id=str(body["id"]).removeprefix("resp_"),
        text="".join(part.get("text") or part.get("refusal") or "" for part in parts),
        calls=calls,
        finish=finish,
        prompt_tokens=_tokens(usage, "input_tokens"),
        completion_tokens=_tokens(usage, "output_tokens"),
        created=int(body.get("created_at") or 0),
    )


def _from_anthropic(body: Any) -> AgentReply:
    blocks, usage = body["content"], body.get("usage") or {}
    calls = tuple(
        FunctionCall(block["name"], msgspec.json.encode(block.get("input") or {}).decode(), block["id"])
        for block in blocks
        if block["type"] == "tool_use"
    )
    counted = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return AgentReply(
        id=str(body["id"]).removeprefix("msg_"),
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        calls=calls,
        reasoning="".join(block.get("thinking", "") for block in blocks if block["type"] == "thinking"),
        finish=_FINISHES.get(body.get("stop_reason"), "stop"),
        stop=body.get("stop_sequence") or "",
        prompt_tokens=sum(_tokens(usage, name) for name in counted),
        completion_tokens=_tokens(usage, "output_tokens"),
    )


_READERS = {"chat": _from_chat, "responses": _from_responses, "anthropic": _from_anthropic}
