"""The agent of the tutorial, as its page shows it: a LangGraph graph, recorded token by token."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
from tests.agents.test_program import check, play, program

pytestmark = [pytest.mark.bridges, pytest.mark.timeout(300), pytest.mark.filterwarnings("ignore")]

AGENT = Path(__file__).parents[2] / "docs" / "snippets" / "langgraph" / "my_agent.py"


def _run() -> Any:
    pytest.importorskip("langgraph")
    pytest.importorskip("langchain_openai")
    found = importlib.util.spec_from_file_location("my_agent", AGENT)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module.run


async def test_the_agent_of_the_tutorial_plays_and_every_call_continues() -> None:
    for trajectory in await play(program(_run()), n=8):
        assert not trajectory.failures
        check(trajectory)
        links = [call.link for call in trajectory.agent.calls]  # type: ignore[union-attr]
        assert links == ["start", *["extended"] * (len(trajectory.turns) - 1)]


def test_the_agent_has_at_most_forty_lines() -> None:
    assert len(AGENT.read_text().splitlines()) <= 40
