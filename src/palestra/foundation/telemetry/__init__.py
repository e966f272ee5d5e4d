"""Traces for operators, in OpenTelemetry's form: episode, turn, engine call, tool call, learner step.

Tracing is off unless ``tracing`` is entered, which the command line does if ``PALESTRA_OTLP_ENDPOINT`` is set. While it is off,
a span costs one comparison. A span never holds the text of an episode: of an error it holds the name of the type only, because
messages quote what a model or an API wrote.
"""

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install

__all__ = ["ENDPOINT_VARIABLE", "TraceSpan", "is_tracing", "span", "tracing", "tracing_if_asked"]

ENDPOINT_VARIABLE = "PALESTRA_OTLP_ENDPOINT"
"""The address of an OTLP collector over HTTP, such as http://127.0.0.1:4318."""


class TraceSpan(Protocol):
    """A running span."""

    def set_attribute(self, key: str, value: Any) -> None:
        """Add a fact that is known only later."""
        ...


class _NoSpan:
    """The span while tracing is off.

    Every turn of every episode is inside of one. Its methods are static because ``with`` holds a bound method until it ends:
    one more object for each of thousands of episodes that the garbage collector follows.
    """

    @staticmethod
    def __enter__() -> "_NoSpan":
        return _NO_SPAN

    @staticmethod
    def __exit__(*_: object) -> None: ...

    def set_attribute(self, key: str, value: Any) -> None: ...


_NO_SPAN = _NoSpan()
_tracer: Any = None


def is_tracing() -> bool:
    """Whether spans are recorded. What is done thousands of times per second asks before it makes one."""
    return _tracer is not None


def span(name: str, **attributes: Any) -> AbstractContextManager[TraceSpan]:
    """Return a context manager for a span. Spans that are entered inside of it become its children."""
    if _tracer is None:
        return _NO_SPAN
    return _traced(f"palestra.{name}", {f"palestra.{key}": value for key, value in attributes.items()})


@contextmanager
def _traced(name: str, attributes: dict[str, Any]) -> Iterator[TraceSpan]:
    running: TraceSpan
    with _tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as running:
        try:
            yield running
        except BaseException as error:
            running.set_attribute("palestra.error", type(error).__name__)
            raise


@contextmanager
def tracing(endpoint: str) -> Iterator[None]:
    """Send the spans of the block to the collector at ``endpoint``; all of them are sent when the block ends.

    Raises:
        MissingExtra: OpenTelemetry is not installed.

    """
    global _tracer  # noqa: PLW0603 - the state of this process
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise MissingExtra(f"traces need {error.name}: {how_to_install('telemetry')}") from None
    provider = TracerProvider(resource=Resource.create({"service.name": "palestra"}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint.rstrip('/')}/v1/traces")))
    _tracer = provider.get_tracer("palestra")
    try:
        yield
    finally:
        _tracer = None
        provider.shutdown()


@contextmanager
def tracing_if_asked() -> Iterator[None]:
    """Trace the block if ``PALESTRA_OTLP_ENDPOINT`` is set."""
    endpoint = os.environ.get(ENDPOINT_VARIABLE)
    if not endpoint:
        yield
        return
    with tracing(endpoint):
        yield
