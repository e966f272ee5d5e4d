"""The pages on studies show what the results say: filling them again changes nothing."""

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from docs.results.studies import lending

from palestra import AsyncEnv
from palestra.evaluation.comparison import compare
from palestra.statistics import Score
from palestra.studies import load_study, read_results
from palestra.studies.packing import read_packed
from palestra.studies.page import fill_page
from palestra.trajectory import Content, Task
from tests.docs.test_pages import ROOT

PAGES = [
    "design/learning.md",
    "tutorials/06-train-your-agent.md",
    *(
        f"results/{name}.md"
        for name in (
            "asynchrony",
            "baselines",
            "horizons",
            "methods",
            "test-time",
            "tools",
            "training-options",
            "worlds-training",
        )
    ),
]
SAMPLE = "results/tools.md"
"""The page that the gate makes again; it has two studies."""


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


@pytest.mark.parametrize("page", [pytest.param(page, marks=[] if page == SAMPLE else pytest.mark.full) for page in PAGES])
def test_a_page_and_its_figures_are_those_of_the_results(page: str, tmp_path: Path) -> None:
    studies = ROOT / "docs" / "results" / "studies"
    shutil.copytree(studies, tmp_path / "results" / "studies")
    copy = tmp_path / page
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "docs" / page, copy)
    folders = fill_page(copy)
    assert copy.read_text(encoding="utf-8") == (ROOT / "docs" / page).read_text(encoding="utf-8")
    for folder in folders:
        for figure in folder.resolve().glob("*.svg"):
            assert figure.read_bytes() == (studies / folder.name / figure.name).read_bytes(), figure.name


@pytest.mark.parametrize("study", ["agent", "craft"])
def test_the_reward_improves_with_every_seed(study: str) -> None:
    folder = ROOT / "docs" / "results" / "studies" / study
    runs = read_results(folder, load_study(folder))
    assert [one.seed for one in runs] == [0, 1, 2]
    for one in runs:
        after, before = (
            [Score((), task, value) for task, value in enumerate(side["reward"])] for side in (one.after, one.before)
        )
        assert compare(after, before, bounds=(-0.1, 1.0)).difference.low > 0  # an action that is no move costs 0.1


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
