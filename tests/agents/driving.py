"""Agents of three dialects, written as plainly as possible: they build requests, and read answers and streams."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from palestra.agents import Gateway, OpenEpisode

DialectName = Literal["chat", "responses", "anthropic"]

_NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD: dict[str, Any] = {"name": "add", "description": "Add two numbers.", "parameters": _NUMBERS}
"""A tool for agents."""


class Called(NamedTuple):
    id: str
    name: str
    arguments: Any


class Answer(NamedTuple):
    """An answer as an agent sees it."""

    text: str
    calls: tuple[Called, ...]
    finish: str
    native: list[dict[str, Any]]
    """What the agent appends to its history."""
    id: str
    usage: dict[str, Any]


class Response(NamedTuple):
    status: int
    body: bytes
    headers: dict[bytes, bytes]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client(NamedTuple):
    """What a client does on the wire, when it is not a good one."""

    disconnect_after: float | None = None
    slow: float = 0.0


GOOD = Client()


async def post(app: Gateway, path: str, body: bytes, headers: dict[str, str], client: Client = GOOD) -> Response:
    """Call the ASGI application as a server does."""
    gone = False
    scope = {
        "type": "http",
        "method": "POST" if body or "models" not in path else "GET",
        "path": path,
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    inbox.put_nowait({"type": "http.request", "body": body, "more_body": False})
    got: list[bytes] = []
    started: dict[str, Any] = {}

    async def send(event: Any) -> None:
        if gone:
            return
        if client.slow and event["type"] == "http.response.body":
            await asyncio.sleep(client.slow)
        if event["type"] == "http.response.start":
            started.update(event)
        else:
            got.append(event.get("body", b""))

    running = asyncio.ensure_future(app(scope, inbox.get, send))
    if client.disconnect_after is not None:
        await asyncio.wait([running], timeout=client.disconnect_after)
        gone = True
        inbox.put_nowait({"type": "http.disconnect"})
        if running.done():
            await running
        return Response(0, b"", {})
    await running
    return Response(started["status"], b"".join(got), dict(started["headers"]))


def events_of(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream: name and data."""
    events = []
    for block in body.decode().split("\n\n"):
        if lines := [line for line in block.splitlines() if line and not line.startswith(":")]:
            name = next((line[7:] for line in lines if line.startswith("event: ")), "")
            data = "".join(line[6:] for line in lines if line.startswith("data: "))
            events.append((name, data if data == "[DONE]" else json.loads(data)))
    return events


@dataclass
class Agent:
    """An agent of one dialect, with a history in that dialect's own form."""

    app: Gateway
    episode: OpenEpisode
    dialect: DialectName
    stream: bool = False
    system: str = "You are a careful assistant."
    tools: tuple[dict[str, Any], ...] = ()
    history: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)

    def user(self, text: str) -> None:
        self.history.append({"role": "user", "content": text})

    def take(self, answer: Answer) -> Answer:
        self.history += answer.native
        return answer

    def results(self, answer: Answer, texts: Sequence[str]) -> None:
        """Append the results of the calls of ``answer``."""
        pairs = list(zip(answer.calls, texts, strict=True))
        if self.dialect == "chat":
            self.history += [{"role": "tool", "tool_call_id": call.id, "content": text} for call, text in pairs]
        elif self.dialect == "responses":
            self.history += [{"type": "function_call_output", "call_id": call.id, "output": text} for call, text in pairs]
        else:
            blocks = [{"type": "tool_result", "tool_use_id": call.id, "content": text} for call, text in pairs]
            self.history.append({"role": "user", "content": blocks})

    def branch(self) -> "Agent":
        """The same agent with a copy of its history."""
        return replace(self, history=json.loads(json.dumps(self.history)), extra=dict(self.extra), headers={})

    def body(self) -> bytes:
        body: dict[str, Any] = {"model": "any", **self.extra}
        if self.stream:
            body["stream"] = True
        if self.dialect == "chat":
            head = [{"role": "system", "content": self.system}] if self.system else []
            body["messages"] = head + self.history
            body["stream_options"] = {"include_usage": True} if self.stream else None
        elif self.dialect == "responses":
            body["input"] = self.history
            body["instructions"] = self.system or None
        else:
            body["messages"] = self.history
            body["max_tokens"] = self.extra.get("max_tokens", 4096)
            if self.system:
                body["system"] = [{"type": "text", "text": self.system}]
        if self.tools:
            body["tools"] = [self._tool(tool) for tool in self.tools]
        return json.dumps({key: value for key, value in body.items() if value is not None}).encode()

    def _tool(self, tool: dict[str, Any]) -> dict[str, Any]:
        if self.dialect == "chat":
            return {"type": "function", "function": tool}
        if self.dialect == "responses":
            return {"type": "function", **tool}
        return {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]}

    def auth(self) -> dict[str, str]:
        key = (
            {"x-api-key": self.episode.key} if self.dialect == "anthropic" else {"authorization": f"Bearer {self.episode.key}"}
        )
        return {**key, **self.headers}

    async def send(self, body: bytes | None = None, client: Client = GOOD) -> Response:
        path = {"chat": "chat/completions", "responses": "responses", "anthropic": "messages"}[self.dialect]
        return await post(self.app, f"/v1/{path}", self.body() if body is None else body, self.auth(), client)

    async def ask(self, client: Client = GOOD) -> Answer:
        """Make a call and read its answer."""
        response = await self.send(client=client)
        assert response.status == 200, response.body
        return self.read(response)

    def read(self, response: Response) -> Answer:
        if self.dialect == "chat":
            return _chat_stream(response) if self.stream else _chat(response.json)
        if self.dialect == "responses":
            return _responses(_responses_stream(response) if self.stream else response.json)
        return _anthropic(_anthropic_stream(response) if self.stream else response.json)


def _chat(body: dict[str, Any]) -> Answer:
    (choice,) = body["choices"]
    message = choice["message"]
    calls = [
        Called(c["id"], c["function"]["name"], json.loads(c["function"]["arguments"])) for c in message.get("tool_calls") or ()
    ]
    native = {"role": "assistant", "content": message["content"]}
    if calls:
        native["tool_calls"] = message["tool_calls"]
    return Answer(message["content"] or "", tuple(calls), choice["finish_reason"], [native], body["id"], body["usage"])


def _chat_stream(response: Response) -> Answer:
    events = [data for _, data in events_of(response.body)]
    assert events[-1] == "[DONE]"
    text = finish = ident = ""
    calls: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    for chunk in events[:-1]:
        ident = chunk["id"]
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            delta = choice["delta"]
            text += delta.get("content") or ""
            finish = choice["finish_reason"] or finish
            for part in delta.get("tool_calls") or ():
                if "id" in part:
                    assert part["index"] not in calls
                    calls[part["index"]] = part
                else:
                    calls[part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    message: dict[str, Any] = {"content": text or None}
    if calls:
        message["tool_calls"] = [{key: value for key, value in calls[at].items() if key != "index"} for at in sorted(calls)]
    return _chat({"choices": [{"message": message, "finish_reason": finish}], "id": ident, "usage": usage})


def _responses(body: dict[str, Any]) -> Answer:
    texts = [part["text"] for item in body["output"] if item["type"] == "message" for part in item["content"]]
    calls = [
        Called(i["call_id"], i["name"], json.loads(i["arguments"])) for i in body["output"] if i["type"] == "function_call"
    ]
    finish = "length" if body["status"] == "incomplete" else "tool_calls" if calls else "stop"
    return Answer("".join(texts), tuple(calls), finish, body["output"], body["id"], body["usage"])


def _responses_stream(response: Response) -> dict[str, Any]:
    events = events_of(response.body)
    assert [data["sequence_number"] for _, data in events] == list(range(len(events)))
    assert all(name == data["type"] for name, data in events)
    items: dict[int, dict[str, Any]] = {}
    for name, data in events:
        if name == "response.output_item.added":
            items[data["output_index"]] = data["item"]
        elif name == "response.content_part.added":
            items[data["output_index"]]["content"].append(data["part"])
        elif name == "response.output_text.delta":
            items[data["output_index"]]["content"][data["content_index"]]["text"] += data["delta"]
        elif name == "response.function_call_arguments.delta":
            items[data["output_index"]]["arguments"] += data["delta"]
        elif name == "response.output_item.done":
            assert {**items[data["output_index"]], "status": "completed"} == data["item"]
    last: dict[str, Any] = events[-1][1]["response"]
    assert [{**items[at], "status": "completed"} for at in sorted(items)] == last["output"]
    return last


def _anthropic(body: dict[str, Any]) -> Answer:
    text = "".join(block["text"] for block in body["content"] if block["type"] == "text")
    calls = [Called(b["id"], b["name"], b["input"]) for b in body["content"] if b["type"] == "tool_use"]
    reason = body["stop_reason"]
    finish = {"end_turn": "stop", "max_tokens": "length", "tool_use": "tool_calls"}.get(reason, reason)
    native = [{"role": "assistant", "content": body["content"]}] if body["content"] else []
    return Answer(text, tuple(calls), finish, native, body["id"], body["usage"])


def _anthropic_stream(response: Response) -> dict[str, Any]:
    events = [(name, data) for name, data in events_of(response.body) if name != "ping"]
    assert events[0][0] == "message_start"
    assert events[-1][0] == "message_stop"
    reply: dict[str, Any] = events[0][1]["message"]
    written: dict[int, str] = {}
    for name, data in events:
        if name == "content_block_start":
            assert data["index"] == len(reply["content"])
            reply["content"].append(data["content_block"])
        elif name == "content_block_delta":
            delta = data["delta"]
            if delta["type"] == "text_delta":
                reply["content"][data["index"]]["text"] += delta["text"]
            else:
                written[data["index"]] = written.get(data["index"], "") + delta["partial_json"]
        elif name == "content_block_stop" and data["index"] in written:
            reply["content"][data["index"]]["input"] = json.loads(written[data["index"]])
        elif name == "message_delta":
            reply.update(data["delta"])
            reply["usage"].update(data["usage"])
    return reply
