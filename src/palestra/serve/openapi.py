"""The OpenAPI page of the HTTP side, made from the very types that travel."""

from functools import cache
from typing import Any

import msgspec

from palestra.serve.wire import HTTP_STATUS, PROTOCOL_VERSION, Call, Code, Fault, Hello, Reply, Welcome

__all__ = ["document"]

_TYPES = (Hello, Call, Welcome, Reply, Fault)


@cache
def document() -> dict[str, Any]:
    """The page, as OpenAPI 3.1."""
    _, schemas = msgspec.json.schema_components(_TYPES, ref_template="#/components/schemas/{name}")
    faults = {code: _faults(code) for code in Code}
    session = {"name": "session", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
    always = (Code.UNAUTHORIZED, Code.BAD_FRAME)
    spoken = (*always, Code.TOO_LARGE, Code.UNKNOWN_ENV, Code.NO_SESSION, Code.BUSY, Code.DRAINING)
    called = (*spoken, Code.CONFLICT, Code.DEADLINE, Code.UNSUPPORTED, Code.FAILED)

    def answers(codes: tuple[Code, ...], good: dict[str, Any]) -> dict[str, Any]:
        return {**{str(HTTP_STATUS[code]): faults[code] for code in codes}, **good}

    return {
        "openapi": "3.1.0",
        "info": {"title": "Palestra environment server", "version": str(PROTOCOL_VERSION)},
        "security": [{"token": []}],
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": {
            "/health": {
                "get": {"security": [], "responses": {"200": _said("well"), "503": _said("not well, or about to stop")}}
            },
            "/metrics": {
                "get": {
                    "responses": answers(
                        always[:1],
                        {"200": {"description": "counters", "content": {"text/plain": {"schema": {"type": "string"}}}}},
                    )
                }
            },
            "/v1/envs": {"get": {"responses": answers(always[:1], {"200": _said("what is served")})}},
            "/v1/sessions": {"post": {"requestBody": _body("Hello"), "responses": answers(spoken, {"201": _typed("Welcome")})}},
            "/v1/sessions/{session}": {
                "parameters": [session],
                "get": {"responses": answers((*always, Code.NO_SESSION), {"200": _typed("Welcome")})},
                "delete": {"responses": answers((*always, Code.NO_SESSION), {"204": {"description": "closed"}})},
            },
            "/v1/sessions/{session}/calls": {
                "parameters": [session],
                "post": {"requestBody": _body("Call"), "responses": answers(called, {"200": _typed("Reply")})},
            },
        },
    }


def _typed(name: str) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{name}"}
    return {"description": name, "content": {"application/json": {"schema": schema}}}


def _faults(code: Code) -> dict[str, Any]:
    return {**_typed("Fault"), "description": code.value}


def _said(what: str) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": {}}}}


def _body(name: str) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
