import asyncio
from typing import Annotated, Any, Literal

import msgspec
import pytest

from palestra.errors import UsageError
from palestra.tools import BadArguments, FunctionTool, tool
from palestra.trajectory import ToolResult


@tool
def add(a: int, b: Annotated[int, msgspec.Meta(description="the other")] = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(name="pick", description="Pick one.")
async def choose(colour: Literal["red", "blue"], among: list[str], weights: dict[str, float] | None = None) -> ToolResult:
    return ToolResult(f"{colour} of {among} by {weights}")


def test_the_schema_is_the_signature() -> None:
    assert add.name == "add"
    assert add.description == "Add two numbers."
    assert add.parameters == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer", "description": "the other", "default": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    assert choose.name == "pick"
    assert choose.parameters["properties"]["colour"] == {"enum": ["blue", "red"]}


async def test_calls_are_checked_and_carried_out() -> None:
    assert await add(a=2) == ToolResult("3")
    assert (await choose(colour="red", among=["x"])).text == "red of ['x'] by None"
    for wrong in ({"a": "2"}, {}, {"a": 1, "c": 2}, {"a": None}, {"a": 1.5}):
        with pytest.raises(BadArguments):
            await add(**wrong)
    with pytest.raises(BadArguments):
        await choose(colour="green", among=[])


async def test_structures_get_their_own_definitions() -> None:
    class Point(msgspec.Struct):
        x: int

    def move(to: Point) -> Any:
        return to.x

    moved = FunctionTool.__new__(FunctionTool)
    move.__annotations__["to"] = Point
    moved.__init__(move)  # type: ignore[misc]
    assert "Point" in moved.parameters["$defs"]
    assert await moved(to={"x": 3}) == ToolResult("3")


async def test_a_plain_function_does_not_hold_the_loop() -> None:
    import threading

    go = threading.Event()

    @tool
    def wait() -> str:
        go.wait(10)
        return "done"

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    go.set()
    assert (await task).text == "done"


async def test_errors_pass_through() -> None:
    @tool
    def fail(how: str) -> str:
        raise SystemExit(how) if how == "exit" else KeyError(how)

    with pytest.raises(KeyError):
        await fail(how="key")
    with pytest.raises(RuntimeError, match="SystemExit"):
        await fail(how="exit")


def test_functions_that_cannot_be_tools_are_refused() -> None:
    def untyped(a):  # type: ignore[no-untyped-def]
        return a

    def variadic(*a: int) -> None: ...

    def fine(a: int) -> None: ...

    for function in (untyped, variadic):
        with pytest.raises(UsageError):
            tool(function)
    with pytest.raises(UsageError, match="cannot name"):
        tool(name="two words")(fine)
