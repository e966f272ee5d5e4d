"""The results of studies are complete, and their tools change nothing but how a question can be answered."""

import asyncio
from collections.abc import Callable, Iterator

import pytest
from docs.results.studies import lending

from palestra import AsyncEnv
from palestra.studies import load_study, read_results
from palestra.studies.packing import read_packed
from palestra.trajectory import Content, Task
from tests.docs.test_pages import ROOT


def test_every_result_is_packed_and_belongs_to_a_run_of_its_study() -> None:
    folders = [path.parent for path in (ROOT / "docs" / "results" / "studies").glob("*/study.toml")]
    assert folders
    for folder in folders:
        study = load_study(folder)
        assert not (folder / "runs").exists(), f"palestra study pack {folder.relative_to(ROOT)}"
        players = {f"{run.place}/{player}" for run in study.cells() for player in study.players}
        results = {run.cell.name for run in read_results(folder, study)}
        assert results
        assert set(read_packed(folder)) - players == results, folder


@pytest.fixture
def own_loop() -> Iterator[None]:
    """Ends the thread on which the studies' tools run: it belongs to a process that ends after its runs."""
    yield
    if lending.own_loop.cache_info().currsize:
        loop = lending.own_loop().loop
        loop.call_soon_threadsafe(loop.stop)
        lending.own_loop.cache_clear()


@pytest.mark.usefixtures("own_loop")
@pytest.mark.parametrize(("ask", "calls"), [(lending.sums, "<python>"), (lending.people, "<search>")])
def test_the_studies_of_tools_ask_the_same_with_a_tool_and_without(ask: Callable[[bool], AsyncEnv], calls: str) -> None:
    async def play(tool: bool, seed: int) -> tuple[Content, list[str], float]:
        env = ask(tool)
        question, _ = await env.reset(task=Task("any:id", seed, split="test"))
        actions, reward, over = [], 0.0, False
        while not over:
            actions.append(await env.oracle())
            _, reward, terminated, truncated, _ = await env.step(actions[-1])
            over = terminated or truncated
        await env.close()
        return question, actions, reward

    for seed in range(3):
        (asked, moves, reward), (alone, answer, other) = (asyncio.run(play(tool, seed)) for tool in (True, False))
        assert asked == alone
        assert (reward, other) == (1.0, 1.0)
        assert moves[0].startswith(calls)
        assert moves[1:] == answer
