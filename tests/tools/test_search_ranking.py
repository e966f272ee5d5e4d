"""One corpus has one ranking: on any number of cores, in any number of builds, with ties."""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.tools.ranking import corpus, index_and_rank, queries
from tests.tools.test_search import CORPUS, letters

import palestra
from palestra.core import Env, Step
from palestra.tools.forms import CallForm
from palestra.tools.search import Document, SearchTool, parts
from palestra.tools.search import bm25 as bm25_module
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.tools.search.dense import DenseIndex, Hybrid, build_dense_index
from palestra.tools.search.remote import RemoteRetriever, retrieval_app
from palestra.trajectory import Task
from palestra.wrappers import ToolRules, UseTools

pytest.importorskip("tantivy", reason="tantivy is not installed")


@pytest.fixture
def cores() -> Iterator[set[int]]:
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


@pytest.mark.gate
@pytest.mark.slow
def test_building_again_changes_neither_order_nor_scores(tmp_path: Path, cores: set[int]) -> None:
    documents, asked = corpus(4_000), queries(80)
    rankings = []
    for build in range(4):
        os.sched_setaffinity(0, set(sorted(cores)[: 1 + build % 2]))
        rankings.append(index_and_rank(documents, asked, tmp_path / f"{build}"))
    assert all(ranking == rankings[0] for ranking in rankings)
    assert sum(len({score for _, score in found}) < len(found) for found in rankings[0]) > 20, "the corpus has too few ties"


def test_equal_scores_stand_in_the_order_of_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    same = [Document(f"{number}", "", "a yellow fruit") for number in range(288)]
    random.Random(0).shuffle(same)
    monkeypatch.setattr(bm25_module, "_PART_CHARACTERS", 72 * len("a yellow fruit"))
    build_index(same, tmp_path / "index")
    assert len(list((tmp_path / "index").glob("part-*"))) == 4
    found = Bm25Index(tmp_path / "index").search("fruit", 100)
    assert {hit.score for hit in found} == {found[0].score}
    assert [hit.document for hit in found] == same[:100]


@pytest.mark.parametrize(
    ("name", "value"),
    [("_CANDIDATES", 0), ("_CANDIDATES", 10**9), ("_MOST_BYTES", 0), ("_DENSE", 1), ("_DENSE", 10**9), ("_FEW", 0)],
)
def test_every_way_to_add_scores_ranks_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: int) -> None:
    documents, asked = corpus(300), [*queries(30), "town town TOWN time", "no such word", "x_town"]
    expected = index_and_rank(documents, asked, tmp_path / "usual")
    monkeypatch.setattr(parts, name, value)
    found = index_and_rank(documents, asked, tmp_path / "other")
    for one, other in zip(expected, found, strict=True):
        assert [place for place, _ in one] == [place for place, _ in other]
        assert [score for _, score in one] == pytest.approx([score for _, score in other], rel=1e-6)


def test_parts_hold_every_document_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr(bm25_module, "_PART_CHARACTERS", 30)
    assert build_index(CORPUS, tmp_path / "parts", progress=told.append) == 4
    index = Bm25Index(tmp_path / "parts")
    assert told == [4]
    assert {index.search(document.text, 1)[0].document for document in CORPUS} == set(CORPUS)
    assert build_index([], tmp_path / "empty") == 0
    assert Bm25Index(tmp_path / "empty").search("fruit", 3) == []


def test_vectors_that_tie_stand_in_the_order_of_the_corpus_however_they_are_asked(tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    chance = random.Random(0)
    texts = [" ".join(chance.choices(["red", "green", "blue", "fruit", "tree", "root", "dog"], k=3)) for _ in range(400)]
    build_dense_index([Document(str(row), "", text) for row, text in enumerate(texts)], tmp_path / "dense", letters)
    index = DenseIndex(tmp_path / "dense", letters)
    asked = texts[:64]
    together = index.search(asked, 10)
    assert together == [index.search([query], 10)[0] for query in asked]
    for hits in together:
        keys = [(-hit.score, int(hit.document.id)) for hit in hits]
        assert keys == sorted(keys)
    whole = index.search(asked[:5], 400)
    assert [hits[:10] for hits in whole] == together[:5]
    assert np.isclose(together[0][0].score, 1.0)


def test_the_hash_is_of_the_corpus_and_its_order(tmp_path: Path) -> None:
    for name, documents in {"one": CORPUS, "same": CORPUS, "turned": CORPUS[::-1], "fewer": CORPUS[:3]}.items():
        build_index(documents, tmp_path / name)
    one, same, turned, fewer = (Bm25Index(tmp_path / name).source for name in ("one", "same", "turned", "fewer"))
    assert one == same
    assert len({one, turned, fewer}) == 3
    assert one.startswith("sha256:")


class Ask(Env):
    """Ends with the first message that is no call."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "Which fruit is yellow?", {}

    def step(self, action: str) -> Step:
        return Step("", float("Banana" in action), True, False, {})


def test_the_hash_of_the_index_is_in_the_trajectory(tmp_path: Path) -> None:
    build_index(CORPUS, tmp_path / "index")
    index = Bm25Index(tmp_path / "index")
    palestra.register(
        "try:Ask-v0", Ask, wrappers=[lambda env: UseTools(env, [SearchTool(index)], ToolRules(forms=(CallForm.SEARCH_TAG,)))]
    )
    said = iter(["<search>yellow fruit</search>", "<search>yellow fruit</search>", "Banana"])
    (trajectory,) = palestra.collect("try:Ask-v0", lambda _: next(said), n=1)
    assert trajectory.reward == 1.0
    calls = [call for turn in trajectory.turns for call in turn.info["tools"].get("calls", ())]
    assert [call["source"] for call in calls] == [index.source, index.source]


async def test_a_server_tells_the_hash_of_its_index(tmp_path: Path) -> None:
    web = pytest.importorskip("aiohttp.web", reason="aiohttp is not installed")
    pytest.importorskip("faiss", reason="faiss is not installed")
    build_index(CORPUS, tmp_path / "index")
    build_dense_index(CORPUS, tmp_path / "dense", letters)
    both = Hybrid(Bm25Index(tmp_path / "index"), DenseIndex(tmp_path / "dense", letters))
    assert both.source.count("sha256:") == 2
    runner = web.AppRunner(retrieval_app(both))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    remote = RemoteRetriever(f"http://127.0.0.1:{runner.addresses[0][1]}")
    assert remote.source == ""
    assert (await SearchTool(remote)(query="fruit")).source == both.source
    await remote.close()
    await runner.cleanup()
