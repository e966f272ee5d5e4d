"""Tools made from typed functions.

``@tool`` reads the signature once: names and types become the JSON schema, the docstring the description. Arguments are
checked against the types before the function is called, so a wrong argument is the model's mistake, not a crash.

A plain function runs in a thread of its own, because it may block. When its deadline passes, the model sees a timeout, but the
thread cannot be killed: if a function may hang, write ``async def`` or use the box.
"""

import asyncio
import inspect
import re
import threading
import typing
from collections.abc import Callable, Mapping
from typing import Any, overload

import msgspec

from palestra.errors import UsageError
from palestra.trajectory import ToolResult

__all__ = ["BadArguments", "FunctionTool", "tool"]


class BadArguments(ValueError):
    """The arguments of a call do not fit the tool; the message is for the model."""


class FunctionTool:
    """A function as a tool."""

    def __init__(self, function: Callable[..., Any], *, name: str = "", description: str = "") -> None:
        self.name = name or function.__name__
        if not re.fullmatch(r"[A-Za-z_][\w.-]{0,63}", self.name):
            raise UsageError(f"{self.name!r} cannot name a tool: use letters, digits and _.- only")
        self.description = description or inspect.getdoc(function) or ""
        self._function = function
        self._arguments = _struct_of(function, self.name)
        self.parameters: Mapping[str, Any] = _schema_of(self._arguments)

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        try:
            checked = msgspec.convert(arguments, self._arguments)
        except msgspec.ValidationError as error:
            raise BadArguments(str(error)) from None
        given = {name: getattr(checked, name) for name in checked.__struct_fields__}
        if inspect.iscoroutinefunction(self._function):
            answer = await self._function(**given)
        else:
            answer = await _in_thread(self._function, given)
        return _as_result(answer)


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(*, name: str = "", description: str = "") -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str = "", description: str = ""
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool from a typed function.

    Args:
        function: The function, plain or async. It returns text, a ``ToolResult``, or a value that JSON can represent.
        name: The name of the tool; that of the function by default.
        description: What the model reads about it; the docstring by default.

    Raises:
        UsageError: A parameter has no type, or is not a named one.

    Example::

        @palestra.tool
        async def halve(low: int, high: int) -> int:
            \"\"\"Return the number in the middle of a range.\"\"\"
            return (low + high) // 2
    """
    if function is not None:
        return FunctionTool(function)
    return lambda function: FunctionTool(function, name=name, description=description)


def _struct_of(function: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    hints = typing.get_type_hints(function, include_extras=True)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UsageError(f"the tool {name!r} needs named parameters, and {parameter} is not one")
        if parameter.name not in hints:
            raise UsageError(f"the parameter {parameter.name!r} of the tool {name!r} has no type")
        kind = hints[parameter.name]
        fields.append(
            (parameter.name, kind) if parameter.default is parameter.empty else (parameter.name, kind, parameter.default)
        )
    return msgspec.defstruct(f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    try:
        (schema,), components = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise UsageError(f"{arguments.__name__}: {error}") from None
    own_schema = components.pop(arguments.__name__)
    del schema
    own_schema.pop("title", None)
    return {**own_schema, "$defs": components} if components else own_schema


async def _in_thread(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Call ``function`` in a thread of its own: a shared pool would fill up with those that hang."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Any] = loop.create_future()

    def settle(answer: Any, error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(answer)
        else:
            done.set_exception(error)

    def work() -> None:
        answer, failure = None, None
        try:
            answer = function(**given)
        except BaseException as error:  # noqa: BLE001 - a tool may raise anything
            failure = error if isinstance(error, Exception) else RuntimeError(f"the tool raised {type(error).__name__}")
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, answer, failure)

    threading.Thread(target=work, name=f"tool {getattr(function, '__name__', '')}", daemon=True).start()
    return await done


def _as_result(answer: object) -> ToolResult:
    if isinstance(answer, ToolResult):
        return answer
    if isinstance(answer, str):
        return ToolResult(answer)
    return ToolResult(msgspec.json.encode(answer).decode())
