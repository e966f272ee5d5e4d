"""Traces as a collector gets them, decoded with OpenTelemetry's own messages; and metrics in Prometheus's text format."""

import gzip
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

import palestra
from palestra.errors import MissingExtra
from palestra.foundation.telemetry import ENDPOINT_VARIABLE, span, tracing, tracing_if_asked
from palestra.tools import tool


class Collector:
    """Receives OTLP over HTTP."""

    def __init__(self) -> None:
        self.bodies = bodies = list[tuple[str, bytes]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def spans(self) -> list[Any]:
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        assert {path for path, _ in self.bodies} == {"/v1/traces"}
        plain = [gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body for _, body in self.bodies]
        resources = [resource for body in plain for resource in ExportTraceServiceRequest.FromString(body).resource_spans]
        return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


def facts(span: Any) -> dict[str, Any]:
    kinds = ("string_value", "int_value", "double_value")
    return {
        pair.key: getattr(pair.value, next(kind for kind in kinds if pair.value.HasField(kind))) for pair in span.attributes
    }


def test_an_episode_with_its_turns_reaches_the_collector(collector: Collector) -> None:
    with tracing(collector.url):
        [played] = palestra.collect("game:GuessTheNumber-v0-easy", "oracle", n=1, seed=3)
    spans = collector.spans()
    [episode] = [span for span in spans if span.name == "palestra.episode"]
    turns = [span for span in spans if span.name == "palestra.turn"]
    assert facts(episode)["palestra.env"] == "game:GuessTheNumber-v0-easy"
    assert facts(episode)["palestra.stop"] == "terminated"
    assert facts(episode)["palestra.reward"] == 1.0
    assert len(turns) == len(played.turns) == facts(episode)["palestra.turns"]
    assert {span.parent_span_id for span in turns} == {episode.span_id}
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)
    assert not any("boxed" in str(span) for span in spans), "a span holds no text of an episode"


def test_calls_of_tools_are_children_of_their_turn(collector: Collector) -> None:
    def asks(text: str) -> str:
        return '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>' if "3" not in text else "\\boxed{3}"

    with tracing(collector.url):
        palestra.collect("game:GuessTheNumber-v0-easy", asks, n=1, seed=3, tools=[add], max_turns=2)
    spans = {span.span_id: span for span in collector.spans()}
    calls = [span for span in spans.values() if span.name == "palestra.tool_call"]
    assert calls
    assert {facts(span)["palestra.tool"] for span in calls} == {"add"}
    assert {spans[span.parent_span_id].name for span in calls} == {"palestra.turn"}


def test_of_an_error_only_the_type_is_sent(collector: Collector) -> None:
    def refuses(text: str) -> str:
        raise RuntimeError("the words of an API")

    with tracing(collector.url):
        palestra.collect("game:GuessTheNumber-v0-easy", refuses, n=1, seed=3)
        with pytest.raises(KeyError), span("engine_call", prompt_tokens=3):
            raise KeyError("the words of a model")
    spans = collector.spans()
    errors = {span.name: facts(span).get("palestra.error") for span in spans}
    assert errors == {"palestra.episode": None, "palestra.turn": "RuntimeError", "palestra.engine_call": "KeyError"}
    assert not any(span.events or span.status.message or "the words" in str(span) for span in spans)


def test_without_an_endpoint_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENDPOINT_VARIABLE, raising=False)
    with tracing_if_asked(), span("episode", env="x") as nothing:
        nothing.set_attribute("palestra.reward", 1.0)
    assert span("a") is span("b")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.resources", None)
    monkeypatch.setenv(ENDPOINT_VARIABLE, "http://127.0.0.1:1")
    with pytest.raises(MissingExtra, match=r"traces need .*(\[telemetry\]|extra \"telemetry\")"), tracing_if_asked():
        pass
