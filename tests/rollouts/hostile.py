"""Environments and policies that misbehave in one way each: a table of kinds, for every path that plays strangers' code.

``ENVS`` and ``POLICIES`` map the name of a kind to a function that makes it. ``hostile:NAME`` of this module is the class of an
environment, so tasks can name it. A hostile policy misbehaves in tasks with odd seeds, and acts in all others.
"""

import asyncio
import itertools
import reprlib
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from palestra import AsyncEnv, Completion, Conversation, Env, Step, Task
from palestra.errors import EnvError, GraderError, InfrastructureError, ToolError
from palestra.foundation.encoding import floats, ints
from palestra.trajectory import AgentRecord, Finish, Image, PlayedRecord, Segment, Span, Text, Tokens, Usage

__all__ = ["ENVS", "INNOCENT", "POLICIES", "Innocent", "env_class", "env_task", "innocent_task"]


class Innocent(Env):
    """Pays 1, whoever plays beside it."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "go", {}

    def step(self, action: str) -> Step:
        return Step("done", 1.0, True, False, {"success": True})

    def oracle(self) -> str:
        return "act"

    def sample_random_action(self) -> str:
        return "act"


# ------------------------------------------------------------------------------------------------- what can be raised


class Unusual(BaseException):
    pass


def refuse(*_: object, **__: object) -> Any:
    raise Unusual


class NoText(Exception):
    __str__ = __repr__ = refuse


class TextOfAnotherType(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


class NoCause(OSError):
    __cause__ = property(refuse)
    errno = property(refuse)


class OwnText(str):
    encode = isascii = __len__ = strip = refuse


class TextWithMethods(Exception):
    def __str__(self) -> str:
        return OwnText("said")


class WrongFields(EnvError):
    kind = detail = 7  # type: ignore[assignment]
    boundary = "nowhere"  # type: ignore[assignment]


def without_a_class() -> BaseException:
    return type("NoClass", (Exception,), {"__class__": property(refuse)})()  # type: ignore[no-any-return]


def looped() -> BaseException:
    error = ValueError("round and round")
    error.__cause__ = error.__context__ = error
    return error


ERRORS: dict[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("x"),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
    "GeneratorExit": GeneratorExit,
    "SystemExit": lambda: SystemExit(0),
    "KeyboardInterrupt": KeyboardInterrupt,
    "CancelledError": asyncio.CancelledError,
    "TimeoutError": TimeoutError,
    "MemoryError": MemoryError,
    "RecursionError": RecursionError,
    "AssertionError": AssertionError,
    "InvalidStateError": asyncio.InvalidStateError,
    "ToolError": lambda: ToolError("x"),
    "GraderError": lambda: GraderError("x"),
    "InfrastructureError": lambda: InfrastructureError("x"),
    "BaseException": Unusual,
    "a group": lambda: BaseExceptionGroup("g", [KeyboardInterrupt(), Unusual(), NoText()]),
    "no text": NoText,
    "text of another type": TextOfAnotherType,
    "text with methods": TextWithMethods,
    "text of surrogates": lambda: ValueError("\ud800"),
    "text of a megabyte": lambda: ValueError("x" * 1_000_000),
    "no cause": NoCause,
    "a cause of itself": looped,
    "no class": without_a_class,
    "wrong fields": WrongFields,
}


# ------------------------------------------------------------------------------------- what can be done to the event loop


def current() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def cancel_itself() -> None:
    current().cancel()
    await asyncio.sleep(0)


async def cancel_itself_and_answer() -> None:
    current().cancel()


async def cancel_itself_later() -> None:
    asyncio.get_running_loop().call_soon(current().cancel)
    await asyncio.sleep(3600)


async def cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
    await asyncio.sleep(0)


async def uncancel() -> None:
    current().uncancel()


async def swallow() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except BaseException:  # noqa: BLE001 - hostile on purpose
            current().uncancel()


async def swallow_in_children() -> None:
    await asyncio.gather(swallow(), swallow())


async def swallow_in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(swallow())


async def shield() -> None:
    await asyncio.shield(asyncio.ensure_future(swallow()))


async def hang() -> None:
    await asyncio.Event().wait()


async def spin() -> None:
    while True:
        try:
            await asyncio.sleep(0)
        except BaseException:  # noqa: BLE001 - hostile on purpose
            continue


async def answer_late() -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        return


async def raise_late() -> None:
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def leave_tasks() -> None:
    left.extend(asyncio.ensure_future(do()) for do in (hang, hang, cancel_itself))


left: list[asyncio.Future[None]] = []


async def await_itself() -> None:
    await current()


async def await_junk() -> None:
    class Junk:
        def __await__(self) -> Generator[object, None, None]:
            yield object()

    await Junk()


async def block_forty_ms() -> None:
    time.sleep(0.04)  # noqa: ASYNC251 - it blocks the event loop on purpose


_DONE: tuple[Callable[[], Awaitable[None]], ...] = (
    cancel_itself,
    cancel_itself_and_answer,
    cancel_itself_later,
    cancel_all,
    uncancel,
    swallow,
    swallow_in_children,
)
_DONE += (
    swallow_in_a_group,
    shield,
    hang,
    spin,
    answer_late,
    raise_late,
    leave_tasks,
    await_itself,
    await_junk,
    block_forty_ms,
)
LOOP: dict[str, Callable[[], Awaitable[None]]] = {do.__name__.replace("_", " "): do for do in _DONE}


# ---------------------------------------------------------------------------------------------- what can be returned


class OwnStr(str):
    encode = isascii = __len__ = __iter__ = refuse


class OwnInt(int):
    __index__ = __float__ = __le__ = __bool__ = refuse


class OwnFloat(float):
    def __float__(self) -> float:
        return float("nan")

    def __le__(self, other: object) -> bool:
        return True

    __ge__ = __le__


class OwnBool:
    __bool__ = refuse


class OwnDict(dict[str, Any]):
    keys = items = __iter__ = __len__ = __contains__ = refuse


class OwnList(list[Any]):
    __iter__ = __len__ = __getitem__ = refuse


class Shy:
    __repr__ = __str__ = __iter__ = __eq__ = refuse
    __hash__ = object.__hash__


def endless() -> dict[str, Any]:
    info: dict[str, Any] = {}
    info["again"] = [info]
    return info


def nested(depth: int) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for _ in range(depth):
        info = {"in": info}
    return info


def multiplied() -> list[Any]:
    rows: list[Any] = [0]
    for _ in range(10):
        rows = [rows] * 10
    return rows


STEP = {"observation": "done", "reward": 1.0, "terminated": True, "truncated": False, "info": {"success": True}}


def same(value: Any) -> Any:
    return value


def returning(*values: Any) -> dict[str, Callable[[], Any]]:
    """A name for each value → what returns the value."""
    named: dict[str, Callable[[], Any]] = {}
    for value in values:
        strange = type(value).__module__ == __name__  # its own ``repr`` may raise
        name = type(value).__name__ if strange else f"{type(value).__name__} {reprlib.repr(value)}"
        named[name] = partial(same, value)
    return named


NAN, INFINITY = float("nan"), float("inf")
CONTROLS = "\0\x1b[2J\u202e"
NOT_TEXT = returning(None, 5, b"x", OwnStr("x"), "\ud800", CONTROLS, "x" * 1_000_000, ["x"], Shy())
NOT_NUMBERS = returning(
    *(NAN, INFINITY, 1e30, 10**400, "1.0", " nan ", None, 1j, True, OwnFloat(1.0), OwnInt(1), np.zeros(3)),
    *(np.ones(1, dtype=np.float32), Shy()),
)
WRONG_CONTENT = (("x",), (Text(5),), (Image("x", 5),), (Text("\ud800"), Image(b"x")))  # type: ignore[arg-type]
FIELDS: dict[str, dict[str, Callable[[], Any]]] = {
    "observation": {**NOT_TEXT, **returning(*WRONG_CONTENT)},
    "reward": NOT_NUMBERS,
    "terminated": returning(OwnBool(), "false", None, np.zeros(2)),
    "truncated": returning(OwnBool(), "false", True),
    "info": {
        **returning(None, [], OwnDict(success=True)),
        "endless": endless,
        "nested 100": partial(nested, 100),
        "nested 5000": partial(nested, 5000),
        "multiplied": lambda: {"rows": multiplied()},
        "200,000 items": lambda: {"rows": list(range(200_000))},
        "objects": lambda: {"x": object(), "type": int, "function": refuse, "loop": asyncio.get_running_loop},
        "own values": lambda: {"a": OwnStr("x"), "b": OwnList([1]), "c": OwnInt(1), "d": OwnFloat(1.0)},
        "shy values": lambda: {"x": Shy(), "y": [Shy()]},
        "keys of all kinds": lambda: {1: 2, (1, 2): 3, None: 4, "1": 5, 1.5: 6, b"x": 7},
        "a shy key": lambda: {Shy(): 1},
        "surrogates": lambda: {"\ud800": "\ud800", "x": ["\udfff"]},
        "large integers": lambda: {"x": 10**5000, "y": 2**70, "z": -(2**64)},
        "NaN": lambda: {"x": NAN, "y": [INFINITY]},
        "bytes": lambda: {"x": b"\xff\0", "y": bytearray(b"x"), "z": memoryview(b"x")},
        "arrays": lambda: {"x": np.zeros((2, 2)), "y": np.array([object()]), "z": np.array(["x", None], dtype=object)},
        "sets": lambda: {"x": {1, 2}, "y": frozenset([(1,)]), "z": {object()}},
    },
}
GHOSTS = ({"": "1"}, {"": NAN}, {"ghost": 5.0}, {5: 5.0}, {"\ud800": 1.0}, {"": 1e9, "x": 1e9})
REASONS = ("boredom", "budget", "error", "deadline", "terminated", "context_overflow")
OPENINGS = ({"content": "x"}, {"role": "god", "content": "x"}, {"role": "system", "content": b"x"})
KEYS: dict[str, dict[str, Callable[[], Any]]] = {
    "success": returning("false", NAN, [0], OwnBool(), np.bool_(True), OwnInt(1)),
    "player": {**NOT_TEXT, "a name": lambda: "somebody"},
    "rewards": returning([1], None, *GHOSTS, OwnDict({"": 1.0})),
    "stop_reason": returning(*REASONS, [], OwnStr("budget")),
    "tools": {**returning([1, 2], "search", OwnList([{}])), "shy": lambda: [Shy()]},
    "metrics": returning("abc", {"a": NAN, "b": "x", "c": None, "d": [1]}, Shy()),
    "max_turns": returning("5", -1, NAN, OwnInt(3)),
    "opening": {
        **returning(5, [1], *([message] for message in OPENINGS), [{"role": "system", "content": "\ud800"}]),
        "endless": endless,
    },
    "role": returning(5, OwnStr("tool")),
}


# ------------------------------------------------------------------------------------------------------- environments


class _Async(AsyncEnv):
    """Plays one turn. A kind replaces one of its verbs."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Any, Any]:
        await super().reset(seed=seed, task=task)
        return "go", {}

    async def step(self, action: str) -> Any:
        return Step(**STEP)  # type: ignore[arg-type]

    async def oracle(self) -> str:
        return "act"

    async def sample_random_action(self) -> str:
        return "act"


def _raising(base: type, verb: str, make: Callable[[], BaseException]) -> type:
    def plain(self: Any, *_: object, **__: object) -> Any:
        raise make()

    async def awaited(self: Any, *_: object, **__: object) -> Any:
        raise make()

    return type("Raising", (base,), {verb: plain if base is Innocent or verb == "__init__" else awaited})


def _doing(verb: str, do: Callable[[], Awaitable[None]]) -> type:
    usual = getattr(_Async, verb)

    async def awaited(self: Any, *arguments: object, **keywords: object) -> Any:
        await do()
        return await usual(self, *arguments, **keywords)

    return type("Doing", (_Async,), {verb: awaited})


def _stepping(**fields: Callable[[], Any]) -> type:
    def step(self: Any, action: str) -> Any:
        made = {**STEP, **{name: make() for name, make in fields.items()}}
        return tuple(made[name] for name in STEP)

    return type("Stepping", (Innocent,), {"step": step})


def _informing(key: str, make: Callable[[], Any]) -> type:
    """States ``key`` in the reset, in a step and in the last step, which is cut."""

    def reset(self: Any, *, seed: int | None = None, task: Task | None = None) -> Any:
        Innocent.reset(self, seed=seed, task=task)
        self.turn = 0
        return "go", {key: make()}

    def step(self: Any, action: str) -> Any:
        self.turn += 1
        return "on", 0.5, False, self.turn == 2, {key: make()}

    return type("Informing", (Innocent,), {"reset": reset, "step": step})


class _Aliasing(Innocent):
    """One dict, one list and one array for all turns."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.info: dict[str, Any] = {"rows": [], "deep": {"rows": []}, "array": np.zeros(1)}
        return "go", self.info

    def step(self, action: str) -> Step:
        self.info["rows"].append(len(self.info["rows"]))
        self.info["deep"]["rows"].append(1)
        self.info["array"] += 1
        return Step("on", 0.5, len(self.info["rows"]) == 3, False, self.info)


RESETS: dict[str, Callable[[], Any]] = {
    **returning(None, "ab", ("go", {}, 1), ("go", None), Shy(), ("go", {})),
    "a generator": lambda: iter(("go", {})),
    "endless": lambda: itertools.repeat("go"),
    "own info": lambda: ("go", OwnDict()),
    "endless info": lambda: ("go", endless()),
}
STEPS: dict[str, Callable[[], Any]] = {
    **returning(None, ("done", 1.0, True, False), ("done", 1.0, True, False, {}, 1), "abcde", Shy(), asyncio.sleep),
    "a generator": lambda: iter(("done", 1.0, True, False, {})),
    "endless": lambda: itertools.repeat("done"),
}


def _replacing(verb: str, make: Callable[[], Any]) -> type:
    """The verb returns what ``make`` returns. The name may be that of an attribute."""
    return type("Replacing", (Innocent,), {verb: lambda self, *_, **__: make()})


def _attribute(name: str) -> type:
    return type("Attribute", (Innocent,), {name: property(refuse)})


VERBS = ("__init__", "reset", "step", "close")
ATTRIBUTES = ("unwrapped", "max_turns", "counts_turns", "reusable", "__dict__")
CUT: dict[str, Callable[[], Any]] = {"truncated": lambda: True, "terminated": lambda: False}
ENVS: dict[str, Callable[[], type]] = {
    **{f"{verb} raises {name}": partial(_raising, _Async, verb, make) for name, make in ERRORS.items() for verb in VERBS},
    **{
        f"plain {verb} raises {name}": partial(_raising, Innocent, verb, make)
        for name, make in ERRORS.items()
        for verb in VERBS
    },
    **{f"{verb}: {name}": partial(_doing, verb, do) for name, do in LOOP.items() for verb in VERBS[1:]},
    **{
        f"{field} is {name}": partial(_stepping, **{field: make}) for field, row in FIELDS.items() for name, make in row.items()
    },
    **{f"reset returns {name}": partial(_replacing, "reset", make) for name, make in RESETS.items()},
    **{f"step returns {name}": partial(_replacing, "step", make) for name, make in STEPS.items()},
    **{f"attribute {name} raises": partial(_attribute, name) for name in ATTRIBUTES},
    "aliases": lambda: _Aliasing,
}
"""The name of a kind → what makes its class."""
for _key, _values in KEYS.items():
    for _name, _value in _values.items():
        ENVS[f"info of every turn has {_key}: {_name}"] = partial(_informing, _key, _value)
        _info = partial(lambda key, value: {key: value()}, _key, _value)
        ENVS[f"info of the last turn has {_key}: {_name}"] = partial(_stepping, **CUT, info=_info)

_NAMES = {f"kind_{number}": name for number, name in enumerate(ENVS)}
_NUMBERS = {name: attribute for attribute, name in _NAMES.items()}


def __getattr__(name: str) -> type:
    if name not in _NAMES:
        raise AttributeError(name)
    made = globals()[name] = ENVS[_NAMES[name]]()
    made.__module__, made.__qualname__ = __name__, name
    return made


INNOCENT = f"{__name__}:Innocent"


def env_class(name: str) -> type:
    """The class of the kind ``name`` of ``ENVS``."""
    kind: type = getattr(sys.modules[__name__], _NUMBERS[name])
    return kind


def env_task(name: str, seed: int) -> Task:
    """A task of the kind ``name`` of ``ENVS``."""
    return Task(f"{__name__}:{_NUMBERS[name]}", seed)


def innocent_task(seed: int) -> Task:
    return Task(INNOCENT, seed)


# ----------------------------------------------------------------------------------------------------------- policies

USAGES: list[Any] = [
    *(Usage(dollars=dollars) for dollars in (NAN, INFINITY, -1.0, "5", OwnFloat(1.0), None)),  # type: ignore[arg-type]
    *(Usage(prompt_tokens=-5), Usage(prompt_tokens=10**30)),
    *(Usage(completion_tokens=tokens) for tokens in (0.5, OwnInt(5))),  # type: ignore[arg-type]
    *(Usage(retries=retries) for retries in ({"x": "y"}, {5: 1}, [5], OwnDict(x=1), endless())),  # type: ignore[arg-type]
    *(5, Shy()),
]
TOKENS: list[Any] = [
    5,
    Tokens([1], [2], [-0.5]),  # type: ignore[arg-type]
    Tokens("a", "b", "c"),  # type: ignore[arg-type]
    Tokens(ints([1]), ints([2]), floats([0.0]), version="new"),  # type: ignore[arg-type]
    Tokens(ints([1]), ints([2]), floats([0.0]), updates=((0, "x"),)),  # type: ignore[arg-type]
    Tokens(ints([1]), ints([2]), floats([NAN])),
]
FINISHES: list[Any] = ["boredom", [], OwnStr("stop"), "stop"]
ACTS: dict[str, Callable[[], Any]] = {
    **{f"text {name}": make for name, make in NOT_TEXT.items()},
    **{f"text of a completion {name}": lambda make=make: Completion(make()) for name, make in NOT_TEXT.items()},  # type: ignore[misc]
    **{f"reasoning {name}": lambda make=make: Completion("act", reasoning=make()) for name, make in NOT_TEXT.items()},  # type: ignore[misc]
    **{f"usage {number}": partial(Completion, "act", usage=usage) for number, usage in enumerate(USAGES)},
    **{f"tokens {number}": partial(Completion, "act", tokens=tokens) for number, tokens in enumerate(TOKENS)},
    **{f"notes {number}": partial(Completion, "act", notes=(tokens,)) for number, tokens in enumerate(TOKENS)},
    **{f"finish {number}": partial(Completion, "act", finish=finish) for number, finish in enumerate(FINISHES)},
    "notes a list": lambda: Completion("act", notes=[5]),  # type: ignore[arg-type]
    "empty": lambda: Completion("", finish=Finish.EMPTY),
}
PLAYED: list[Any] = [
    *(5, (), Shy(), PlayedRecord()),
    *(PlayedRecord(segments) for segments in (5, (5,), (Segment("a", (Span(0, 1, "x"),), [1.0]),))),  # type: ignore[arg-type]
    *(PlayedRecord((), agent) for agent in (5, AgentRecord(links={"x": "y"}))),  # type: ignore[arg-type, dict-item]
]


class _Policy:
    """Acts. A kind replaces what it does in a task with an odd seed."""

    name = "hostile"

    def __init__(
        self,
        act: Callable[[Conversation], Awaitable[Any]] | None = None,
        end: Callable[[Conversation], Awaitable[Any]] | None = None,
    ) -> None:
        self._act = act
        if end is not None:
            self.end_episode = lambda conversation, final, seconds: self._ended(end, conversation)

    async def act(self, conversation: Conversation) -> Any:
        if self._act is None or conversation.task.seed % 2 == 0:
            return "act"
        return await self._act(conversation)

    @staticmethod
    async def _ended(end: Callable[[Conversation], Awaitable[Any]], conversation: Conversation) -> Any:
        return None if conversation.task.seed % 2 == 0 else await end(conversation)


def _then(make: Callable[[], Any], do: Callable[[], Awaitable[None]] | None = None) -> Callable[[Conversation], Awaitable[Any]]:
    async def act(conversation: Conversation) -> Any:
        if do is not None:
            await do()
        return make()

    return act


def _throw(make: Callable[[], BaseException]) -> Any:
    raise make()


async def _meddle(conversation: Conversation) -> Any:
    conversation.messages.clear()
    conversation.memory = Shy()  # type: ignore[assignment]
    conversation.tools = 5  # type: ignore[assignment]
    return "act"


async def _replace_messages(conversation: Conversation) -> Any:
    conversation.messages = 5  # type: ignore[assignment]
    return "act"


POLICIES: dict[str, Callable[[], Any]] = {
    **{f"act raises {name}": partial(_Policy, _then(partial(_throw, make))) for name, make in ERRORS.items()},
    **{f"end_episode raises {name}": partial(_Policy, end=_then(partial(_throw, make))) for name, make in ERRORS.items()},
    **{f"act: {name}": partial(_Policy, _then(lambda: "act", do)) for name, do in LOOP.items()},
    **{f"end_episode: {name}": partial(_Policy, end=_then(lambda: None, do)) for name, do in LOOP.items()},
    **{f"act returns {name}": partial(_Policy, _then(make)) for name, make in ACTS.items()},
    **{
        f"end_episode returns {number}": partial(_Policy, end=_then(partial(same, record)))
        for number, record in enumerate(PLAYED)
    },
    "meddles with the conversation": lambda: _Policy(_meddle),
    "replaces the messages": lambda: _Policy(_replace_messages),
}
"""The name of a kind → what makes a policy."""
