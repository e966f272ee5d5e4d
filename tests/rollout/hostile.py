"""Environments and policies that misbehave in one way each: a table of kinds, for every path that plays strangers' code.

``ENVS`` and ``POLICIES`` map the name of a kind to a function that makes it. ``hostile:NAME`` of this module is the class of an
environment, so tasks can name it. A hostile policy misbehaves in tasks with odd seeds, and acts in all others.
"""

import asyncio
import itertools
import sys
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from palestra import AsyncEnv, Completion, Conversation, Env, Step, Task
from palestra.encoding import floats, ints
from palestra.errors import EnvError, GraderError, InfrastructureError, ToolError
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


_DONE = (cancel_itself, cancel_itself_and_answer, cancel_itself_later, cancel_all, uncancel, swallow, swallow_in_children)
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

NOT_TEXT: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "an int": lambda: 5,
    "bytes": lambda: b"x",
    "own text": lambda: OwnStr("x"),
    "surrogates": lambda: "\ud800",
    "control characters": lambda: "\0\x1b[2J\u202e",
    "a megabyte": lambda: "x" * 1_000_000,
    "a list": lambda: ["x"],
    "shy": Shy,
}
NOT_NUMBERS: dict[str, Callable[[], Any]] = {
    "NaN": lambda: float("nan"),
    "infinity": lambda: float("inf"),
    "1e30": lambda: 1e30,
    "10**400": lambda: 10**400,
    "text": lambda: "1.0",
    "NaN as text": lambda: " nan ",
    "None": lambda: None,
    "complex": lambda: 1j,
    "a bool": lambda: True,
    "own float": lambda: OwnFloat(1.0),
    "own int": lambda: OwnInt(1),
    "an array": lambda: np.zeros(3),
    "an array of one": lambda: np.ones(1, dtype=np.float32),
    "shy": Shy,
}
FIELDS: dict[str, dict[str, Callable[[], Any]]] = {
    "observation": {
        **NOT_TEXT,
        "a tuple of text": lambda: ("x",),
        "a wrong Text": lambda: (Text(5),),  # type: ignore[arg-type]
        "a wrong Image": lambda: (Image("x", 5),),  # type: ignore[arg-type]
        "Text of surrogates": lambda: (Text("\ud800"), Image(b"x")),
    },
    "reward": NOT_NUMBERS,
    "terminated": {"own bool": OwnBool, "text": lambda: "false", "None": lambda: None, "an array": lambda: np.zeros(2)},
    "truncated": {"own bool": OwnBool, "text": lambda: "false", "True as well": lambda: True},
    "info": {
        "None": lambda: None,
        "a list": list,
        "own dict": lambda: OwnDict(success=True),
        "endless": endless,
        "nested 100": lambda: nested(100),
        "nested 5000": lambda: nested(5000),
        "multiplied": lambda: {"rows": multiplied()},
        "200,000 items": lambda: {"rows": list(range(200_000))},
        "objects": lambda: {"x": object(), "type": int, "function": refuse, "loop": asyncio.get_running_loop},
        "own values": lambda: {"a": OwnStr("x"), "b": OwnList([1]), "c": OwnInt(1), "d": OwnFloat(1.0)},
        "shy values": lambda: {"x": Shy(), "y": [Shy()]},
        "keys of all kinds": lambda: {1: 2, (1, 2): 3, None: 4, "1": 5, 1.5: 6, b"x": 7},
        "a shy key": lambda: {Shy(): 1},
        "surrogates": lambda: {"\ud800": "\ud800", "x": ["\udfff"]},
        "large integers": lambda: {"x": 10**5000, "y": 2**70, "z": -(2**64)},
        "NaN": lambda: {"x": float("nan"), "y": [float("inf")]},
        "bytes": lambda: {"x": b"\xff\0", "y": bytearray(b"x"), "z": memoryview(b"x")},
        "arrays": lambda: {"x": np.zeros((2, 2)), "y": np.array([object()]), "z": np.array(["x", None], dtype=object)},
        "sets": lambda: {"x": {1, 2}, "y": frozenset([(1,)]), "z": {object()}},
    },
}
KEYS: dict[str, dict[str, Callable[[], Any]]] = {
    "success": {
        "text": lambda: "false",
        "NaN": lambda: float("nan"),
        "a list": lambda: [0],
        "own bool": OwnBool,
        "a numpy bool": lambda: np.bool_(True),
        "own int": lambda: OwnInt(1),
    },
    "player": {**NOT_TEXT, "a name": lambda: "somebody"},
    "rewards": {
        "a list": lambda: [1],
        "None": lambda: None,
        "text": lambda: {"": "1"},
        "NaN": lambda: {"": float("nan")},
        "a ghost": lambda: {"ghost": 5.0},
        "an int as player": lambda: {5: 5.0},
        "surrogates as player": lambda: {"\ud800": 1.0},
        "a sum too large": lambda: {"": 1e9, "x": 1e9},
        "own dict": lambda: OwnDict({"": 1.0}),
    },
    "stop_reason": {
        "no reason": lambda: "boredom",
        "budget": lambda: "budget",
        "error": lambda: "error",
        "deadline": lambda: "deadline",
        "terminated": lambda: "terminated",
        "context_overflow": lambda: "context_overflow",
        "a list": list,
        "own text": lambda: OwnStr("budget"),
    },
    "tools": {
        "ints": lambda: [1, 2],
        "text": lambda: "search",
        "own list": lambda: OwnList([{}]),
        "a shy one": lambda: [Shy()],
    },
    "metrics": {"text": lambda: "abc", "NaN": lambda: {"a": float("nan"), "b": "x", "c": None, "d": [1]}, "shy": Shy},
    "max_turns": {"text": lambda: "5", "negative": lambda: -1, "NaN": lambda: float("nan"), "own int": lambda: OwnInt(3)},
    "opening": {
        "an int": lambda: 5,
        "no dicts": lambda: [1],
        "no role": lambda: [{"content": "x"}],
        "a wrong role": lambda: [{"role": "god", "content": "x"}],
        "no text": lambda: [{"role": "system", "content": b"x"}],
        "surrogates": lambda: [{"role": "system", "content": "\ud800"}],
        "endless": endless,
    },
    "role": {"an int": lambda: 5, "own text": lambda: OwnStr("tool")},
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
    "None": lambda: None,
    "text": lambda: "ab",
    "three": lambda: ("go", {}, 1),
    "no info": lambda: ("go", None),
    "a generator": lambda: iter(("go", {})),
    "endless": lambda: itertools.repeat("go"),
    "shy": Shy,
    "no begin": lambda: ("go", {}),
    "own info": lambda: ("go", OwnDict()),
    "endless info": lambda: ("go", endless()),
}
STEPS: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "four": lambda: ("done", 1.0, True, False),
    "six": lambda: ("done", 1.0, True, False, {}, 1),
    "a generator": lambda: iter(("done", 1.0, True, False, {})),
    "endless": lambda: itertools.repeat("done"),
    "text": lambda: "abcde",
    "shy": Shy,
    "a coroutine": lambda: asyncio.sleep,
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

USAGES: dict[str, Callable[[], Any]] = {
    "dollars NaN": lambda: Usage(dollars=float("nan")),
    "dollars infinite": lambda: Usage(dollars=float("inf")),
    "dollars negative": lambda: Usage(dollars=-1.0),
    "dollars as text": lambda: Usage(dollars="5"),  # type: ignore[arg-type]
    "dollars own": lambda: Usage(dollars=OwnFloat(1.0)),
    "dollars None": lambda: Usage(dollars=None),  # type: ignore[arg-type]
    "prompt tokens negative": lambda: Usage(prompt_tokens=-5),
    "prompt tokens 10**30": lambda: Usage(prompt_tokens=10**30),
    "completion tokens 0.5": lambda: Usage(completion_tokens=0.5),  # type: ignore[arg-type]
    "completion tokens own": lambda: Usage(completion_tokens=OwnInt(5)),
    "retries of text": lambda: Usage(retries={"x": "y"}),  # type: ignore[dict-item]
    "retries of ints": lambda: Usage(retries={5: 1}),  # type: ignore[dict-item]
    "retries a list": lambda: Usage(retries=[5]),  # type: ignore[arg-type]
    "retries own": lambda: Usage(retries=OwnDict(x=1)),
    "retries endless": lambda: Usage(retries=endless()),
    "an int": lambda: 5,
    "shy": Shy,
}
TOKENS: dict[str, Callable[[], Any]] = {
    "an int": lambda: 5,
    "lists": lambda: Tokens([1], [2], [-0.5]),  # type: ignore[arg-type]
    "text": lambda: Tokens("a", "b", "c"),  # type: ignore[arg-type]
    "version of text": lambda: Tokens(ints([1]), ints([2]), floats([0.0]), version="new"),  # type: ignore[arg-type]
    "updates of text": lambda: Tokens(ints([1]), ints([2]), floats([0.0]), updates=((0, "x"),)),  # type: ignore[arg-type]
    "NaN": lambda: Tokens(ints([1]), ints([2]), floats([float("nan")])),
}
ACTS: dict[str, Callable[[], Any]] = {
    **{f"text {name}": make for name, make in NOT_TEXT.items()},
    **{f"text of a completion {name}": lambda make=make: Completion(make()) for name, make in NOT_TEXT.items()},  # type: ignore[misc]
    **{f"reasoning {name}": lambda make=make: Completion("act", reasoning=make()) for name, make in NOT_TEXT.items()},  # type: ignore[misc]
    **{f"usage: {name}": lambda make=make: Completion("act", usage=make()) for name, make in USAGES.items()},  # type: ignore[misc]
    **{f"tokens: {name}": lambda make=make: Completion("act", tokens=make()) for name, make in TOKENS.items()},  # type: ignore[misc]
    **{f"notes: {name}": lambda make=make: Completion("act", notes=(make(),)) for name, make in TOKENS.items()},  # type: ignore[misc]
    "finish boredom": lambda: Completion("act", finish="boredom"),  # type: ignore[arg-type]
    "finish a list": lambda: Completion("act", finish=[]),  # type: ignore[arg-type]
    "finish own": lambda: Completion("act", finish=OwnStr("stop")),  # type: ignore[arg-type]
    "finish as text": lambda: Completion("act", finish="stop"),  # type: ignore[arg-type]
    "notes a list": lambda: Completion("act", notes=[5]),  # type: ignore[arg-type]
    "empty": lambda: Completion("", finish=Finish.EMPTY),
}
PLAYED: dict[str, Callable[[], Any]] = {
    "an int": lambda: 5,
    "an empty tuple": tuple,
    "shy": Shy,
    "segments 5": lambda: PlayedRecord(5),  # type: ignore[arg-type]
    "segments of ints": lambda: PlayedRecord((5,)),  # type: ignore[arg-type]
    "a wrong segment": lambda: PlayedRecord((Segment("a", (Span(0, 1, "x"),), [1.0]),)),  # type: ignore[arg-type]
    "a wrong agent": lambda: PlayedRecord((), 5),  # type: ignore[arg-type]
    "a wrong record": lambda: PlayedRecord((), AgentRecord(links={"x": "y"})),  # type: ignore[dict-item]
    "nothing recorded": PlayedRecord,
}


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
    **{f"end_episode returns {name}": partial(_Policy, end=_then(make)) for name, make in PLAYED.items()},
    "meddles with the conversation": lambda: _Policy(_meddle),
    "replaces the messages": lambda: _Policy(_replace_messages),
}
"""The name of a kind → what makes a policy."""
