from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.errors import MissingData, UsageError
from palestra.registry import parse_options
from palestra.tools import CallForm, tool
from palestra.tools.search.bm25 import build_index
from palestra.tools.search.documents import Document
from palestra.wrappers import ToolRules, TurnLimit
from palestra.wrappers.lending import SEARCH, lend, named_tool, named_wrapper, search_tool, with_python, with_search

GUESS = "game:GuessTheNumber-v0-easy"


@tool
async def double(number: int) -> int:
    """Twice a number."""
    return 2 * number


def doubling(name: str = "twice") -> Any:
    return tool(name=name)(_triple)


async def _triple(number: int) -> int:
    return 3 * number


def shouting(env: palestra.AsyncEnv, mark: str = "!") -> palestra.AsyncEnv:
    class Shouting(palestra.Wrapper):
        def observation(self, observation: Any) -> Any:
            return observation + mark

    return Shouting(env)


HERE = __name__


@pytest.mark.parametrize(
    ("name", "keywords"), [("TurnLimit", {"turns": 2}), ("TurnLimit?turns=2", {}), ("TurnLimit?turns=9", {"turns": 2})]
)
def test_a_built_in_wrapper_by_name(name: str, keywords: dict[str, Any]) -> None:
    wrapped = named_wrapper(name, **keywords)(palestra.make_async(GUESS))
    assert isinstance(wrapped, TurnLimit)
    assert wrapped.turns == 2


def test_a_wrapper_of_ones_own_by_reference() -> None:
    with palestra.make(GUESS, wrappers=[named_wrapper(f"{HERE}:shouting", mark="?!")]) as env:
        assert env.reset(seed=0)[0].endswith("?!")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("name", "keywords", "message"),
    [
        (
            "TurnLimits",
            {},
            'wrapper = "TurnLimits" is unknown: write one of Attempts, KeepHistory, Reword, TokenLimit, TurnLimit, or your own',
        ),
        ("TurnLimit", {"turn": 2}, r'TurnLimit has no keyword "turn"\. Did you mean turns\?'),
        ("TurnLimit?turns", {}, r'"turns" is not an option of "TurnLimit\?turns": write TurnLimit\?key=value'),
    ],
)
def test_a_wrong_wrapper_is_refused_with_what_to_write(name: str, keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        named_wrapper(name, **keywords)


def test_tools_by_name() -> None:
    assert named_tool(f"{HERE}:double") is double
    assert named_tool(f"{HERE}:doubling", name="thrice").name == "thrice"
    assert named_tool(f"{HERE}:doubling?name=thrice").name == "thrice"
    with pytest.raises(UsageError, match="it takes no keywords, got times"):
        named_tool(f"{HERE}:double", times=3)
    with pytest.raises(UsageError, match='tool = "pyhton" is unknown: write one of python, search, or your own'):
        named_tool("pyhton")
    with pytest.raises(UsageError, match="returned a PosixPath; a tool has name"):
        named_tool("pathlib:Path")


def test_search_names_where_to_search(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(SEARCH, raising=False)
    with pytest.raises(MissingData, match=f"set {SEARCH}"):
        named_tool("search")
    assert named_tool("search", index="http://127.0.0.1:9/retrieve").name == "search"


async def test_search_reads_an_index(tmp_path: Path) -> None:
    build_index([Document("1", "Moon", "It is far."), Document("2", "Tea", "It is hot.")], tmp_path / "index")
    found = await named_tool(f"search?index={tmp_path}/index&k=1")(query="moon")
    assert "It is far." in found.text
    assert "It is hot." not in found.text


def test_lent_tools_answer_calls() -> None:
    with palestra.make(GUESS, wrappers=[lend([f"{HERE}:double"])]) as env:
        env.reset(seed=0)
        step = env.step('<tool_call>{"name": "double", "arguments": {"number": 21}}</tool_call>')
        assert "42" in str(step.observation)
        assert step.info["tools"]["totals"] == {"ok": 1}


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True), st.integers() | st.booleans() | st.none()))
def test_options_are_read_as_they_were_written(options: dict[str, Any]) -> None:
    written = "&".join(f"{key}={str(value).lower() if value is not None else 'null'}" for key, value in options.items())
    assert parse_options(f"a:b?{written}" if written else "a:b") == ("a:b", options)


async def lent(env: Any) -> tuple[str, list[str]]:
    """What the player is told, and the names of the tools."""
    observation, info = await env.reset(seed=0)
    await env.close()
    return str(observation), [schema["name"] for schema in info["tools"]]


async def test_tools_of_the_named_wrappers_and_how_they_are_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEARCH, "http://127.0.0.1:9/retrieve")  # nothing is asked before a call
    search, tools = await lent(with_search(palestra.make_async(GUESS)))
    assert tools == ["search"]
    assert "<search>query</search>" in search
    assert "<python>" not in search
    python, tools = await lent(with_python(palestra.make_async(GUESS)))
    assert tools == ["python"]
    assert ["a fenced python block" in python, "<tool_call>" in python, "<python>" in python] == [True, True, False]
    told, _ = await lent(lend([double], ToolRules(forms=(CallForm.PYTHON_FENCE,)))(palestra.make_async(GUESS)))
    assert "a fenced python block" in told
    assert "<tool_call>" not in told


@pytest.mark.parametrize(("options", "asked"), [({}, 3), ({"k": 5}, 5)])
async def test_a_search_asks_for_three_passages_unless_it_is_told_another_number(
    options: dict[str, Any], asked: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Passages:
        source = "a corpus"

        async def retrieve(self, queries: list[str], k: int) -> list[list[Any]]:
            assert k == asked
            return [[]]

    monkeypatch.setattr("palestra.wrappers.lending._retriever", lambda where: Passages())
    found = await search_tool(**options)(query="x")
    assert found.source == "a corpus"
