"""The OpenAPI page of the HTTP side, generated from the types of the frames."""

from collections.abc import Iterable
from typing import Any

import msgspec

from palestra.serve.wire import HTTP_STATUS, PROTOCOL_VERSION, CallFrame, Code, Fault, Hello, ReplyFrame, Welcome

__all__ = ["document"]

_TYPES = (Hello, CallFrame, Welcome, ReplyFrame, Fault)


def document(ids: Iterable[str]) -> dict[str, Any]:
    """Return the page of a server of ``ids``, as OpenAPI 3.1."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    # Narrower than the types: only the version and the ids of this server.
    hello = schemas["Hello"]["properties"]
    hello["env"] = {"type": "string", "enum": ["", *ids], "default": ""}
    hello["versions"]["items"] = {"type": "integer", "enum": [PROTOCOL_VERSION]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Palestra environment server", "version": str(PROTOCOL_VERSION)},
        "security": [{"token": []}],
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {**_looking(), **_playing()},
    }


_ALWAYS = (Code.UNAUTHORIZED,)
_SPOKEN = (*_ALWAYS, Code.BAD_FRAME, Code.TOO_LARGE, Code.UNKNOWN_ENV, Code.BUSY)
_CALLED = (*_SPOKEN, Code.CONFLICT, Code.DEADLINE, Code.UNSUPPORTED, Code.FAILED)
_NAMED = (*_ALWAYS, Code.NO_SESSION)


def _looking() -> dict[str, Any]:
    counters = {"description": "counters", "content": {"text/plain": {"schema": {"type": "string"}}}}
    well = {"200": _said("well"), "503": _said("not well, or about to stop")}
    return {
        "/health": {"get": {"operationId": "health", "security": [], "responses": well}},
        "/metrics": {"get": {"operationId": "metrics", "responses": _answers(_ALWAYS, "200", counters)}},
        "/v1/envs": {"get": {"operationId": "envs", "responses": _answers(_ALWAYS, "200", _said("what is served"))}},
    }


def _playing() -> dict[str, Any]:
    session = {"name": "session", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    follow = {"session": "$response.body#/session"}
    links = {name: {"operationId": name, "parameters": follow} for name in ("call", "renew", "end")}
    opened = {**_typed("Welcome"), "links": links}
    return {
        "/v1/sessions": {
            "post": {"operationId": "open", "requestBody": _body("Hello"), "responses": _answers(_SPOKEN, "201", opened)}
        },
        "/v1/sessions/{session}": {
            "parameters": [session],
            "get": {"operationId": "renew", "responses": _answers(_NAMED, "200", _typed("Welcome"))},
            "delete": {"operationId": "end", "responses": _answers(_NAMED, "204", {"description": "closed"})},
        },
        "/v1/sessions/{session}/calls": {
            "parameters": [session],
            "post": {
                "operationId": "call",
                "requestBody": _body("CallFrame"),
                "responses": _answers(_CALLED, "200", _typed("ReplyFrame")),
            },
        },
    }


def _answers(codes: tuple[Code, ...], status: str, good: dict[str, Any]) -> dict[str, Any]:
    faults = {str(HTTP_STATUS[code]): {**_typed("Fault"), "description": code.value} for code in codes}
    return {**faults, status: good}


def _typed(name: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"description": name, "content": {"application/json": {"schema": schema}}}


def _said(what: str) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": {}}}}


def _body(name: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
