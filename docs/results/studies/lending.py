"""The questions of the two studies of tools, with a tool and without. Both ask the same, in few words.

The oracle, whose episodes a prompt shows as examples, calls the tool once where there is one, and answers at once where there
is none.
"""

import itertools
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from palestra import AsyncEnv, Env, Step, make_async
from palestra.adapters import Wrapper, as_async
from palestra.adapters.loop_thread import LoopThread
from palestra.core import Tool
from palestra.foundation.seeding import derive
from palestra.tools.forms import CallForm
from palestra.tools.python import PythonTool
from palestra.tools.search import Document, SearchTool
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.trajectory import Content, Task, ToolResult, text_of
from palestra.wrappers import Reword, ToolRules, TurnLimit, UseTools

_ANSWER = "Answer: "


def sums(tool: bool, terms: int = 3, digits: int = 3) -> AsyncEnv:
    """Sums and differences of ``terms`` numbers; with ``tool``, a Python interpreter in a box."""
    size: dict[str, Any] = {"min_terms": terms, "max_terms": terms, "min_digits": digits, "max_digits": digits}
    short = {r".*problem: (.*?) =\n.*": r"\1 = ?"}
    env: AsyncEnv = Reword(make_async("rg:chain_sum", **size), move=_ANSWER + "{}", observations=short)
    if tool:
        env = _Lent(env, _InTurn(PythonTool(stateful=False)), CallForm.PYTHON_TAG, _program)
    return TurnLimit(_Keyed(env), 3)


def people(tool: bool) -> AsyncEnv:
    """Questions about invented people; with ``tool``, a search in documents about them."""
    env = as_async(_People())
    if tool:
        env = _Lent(env, SearchTool(_collection(), k=1), CallForm.SEARCH_TAG, _query)
    return TurnLimit(_Keyed(env), 3)


def _program(question: str) -> str:
    return f"<python>print({question.removesuffix(' = ?')})</python>"


def _query(question: str) -> str:
    return f"<search>{_name_in(question)}</search>"


# ------------------------------------------------------------------------------------------------------------------- the tools


class _Keyed(Wrapper):
    """Asks the same questions under every id."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        return await self.env.reset(seed=seed, task=task and msgspec.structs.replace(task, env="lending:questions"))


class _Lent(UseTools):
    """Lends a tool without describing it: the examples show it. The oracle first makes the call that ``call`` returns."""

    def __init__(self, env: AsyncEnv, tool: Tool, form: CallForm, call: Callable[[str], str]) -> None:
        super().__init__(env, [tool], ToolRules(forms=(CallForm.TOOL_CALL, form), describe=False))
        self._call_for = call
        self._question = ""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        observation, info = await super().reset(seed=seed, task=task)
        self._question = text_of(observation)
        return observation, info

    async def oracle(self) -> str:
        return await super().oracle() if self.totals else self._call_for(self._question)


class _InTurn:
    """A tool that holds the event loop until it has answered, so that the batches of the engine do not depend on the clock."""

    def __init__(self, tool: Tool) -> None:
        self.name, self.description, self.parameters = tool.name, tool.description, tool.parameters
        self._tool = tool

    async def __call__(self, **arguments: Any) -> ToolResult:
        return own_loop().run(self._tool(**arguments))


@cache
def own_loop() -> LoopThread:
    """The thread on which the tools run until the process ends."""
    return LoopThread()


# ------------------------------------------------------------------------------------------------------------------ the people

_WORDS = tomllib.loads((Path(__file__).parent / "search_tool" / "people.toml").read_text(encoding="utf-8"))
_FACTS: dict[str, list[str]] = _WORDS["facts"]
"""Question → its possible answers."""


@cache
def _everyone() -> dict[str, tuple[str, ...]]:
    """The people of both splits and their facts; half of them are only in ``test``."""
    random = derive(0, "lending", "people")
    names = [f"{first} {last}" for first, last in itertools.product(_WORDS["forenames"], _WORDS["surnames"])]
    order = random.permutation(len(names)).tolist()
    return {names[place]: tuple(values[int(random.integers(len(values)))] for values in _FACTS.values()) for place in order}


@cache
def _collection() -> Bm25Index:
    folder = Path(_place().name) / "index"
    facts = ((name, *values) for name, values in _everyone().items())
    texts = ((name, f"{name} lives in {town}, is a {job} and keeps a {animal}.") for name, town, job, animal in facts)
    build_index((Document(name, name, text) for name, text in texts), folder)
    return Bm25Index(folder)


@cache
def _place() -> tempfile.TemporaryDirectory[str]:
    """A folder that is removed when the process ends."""
    return tempfile.TemporaryDirectory(prefix="palestra-people-")


def _name_in(question: str) -> str:
    return max((name for name in _everyone() if name in question), key=len)


class _People(Env):
    """One question about one fact. The right answer pays 1."""

    reward_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        half = list(_everyone())[self.task.split == "test" :: 2]
        fact = int(self.rng.integers(len(_FACTS)))
        name = half[int(self.rng.integers(len(half)))]
        self._answer = _everyone()[name][fact]
        return list(_FACTS)[fact].format(name), {}

    def step(self, action: str) -> Step:
        before, found, answer = action.partition(_ANSWER)
        if not found or before.strip():
            return Step("There is no answer.", 0.0, True, False, {"success": False, "format_error": True})
        right = answer.strip() == self._answer
        return Step("", float(right), True, False, {"success": right})

    def oracle(self) -> str:
        return _ANSWER + self._answer
