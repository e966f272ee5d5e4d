"""Deep search at its full size: what the oracle solves, what the question alone finds, what guesses score, what a search costs.

The dense index is measured with hashed words as vectors, because no embedding model comes with Palestra. A real model takes
longer. Times are CPU times of this process, tantivy's indexing thread included.
"""

import asyncio
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from rows import Row

from palestra.checking.hostile import GROWING, SHORT
from palestra.errors import MissingExtra
from palestra.foundation.seeding import derive
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.tools.search.dense import DenseIndex, build_dense_index
from palestra.worlds.deepsearch.env import DeepSearch
from palestra.worlds.deepsearch.index import World, invented, real

HOPS = {"invented": (2, 3, 4, 6), "facts": (2, 3, 4)}
ROOT = Path(__file__).parents[1]
TURNS = 30
WIDTH = 256
ROUNDS = 5
"""Rounds of 200 new questions each. Other processes on the machine slow some of them down, also in CPU time."""


def rows(quick: bool) -> list[Row]:
    """Every row of the world."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PALESTRA_HOME"] = folder
        found = [*_worlds(quick, Path(folder)), *_survival(100 if quick else 10_000), *_costs(quick, Path(folder))]
        return found if quick else [*found, _same(folder)]


def _worlds(quick: bool, folder: Path) -> list[Row]:
    found: list[Row] = []
    for name, numbers in HOPS.items():
        if quick and name == "facts":
            continue
        world = invented(0, 10_000) if name == "invented" else real()
        build_index(world.documents, folder / name)
        for hops in numbers:
            solved = asyncio.run(_solved(name, hops, 20 if quick else 300))
            found.append(Row(f"{name}, {hops} hops: share of tasks that the oracle solves", solved, ">= 1"))
            given_away = _given_away(world, Bm25Index(folder / name), hops, 50 if quick else 1000)
            found.append(Row(f"{name}, {hops} hops: the question finds the answer's document (top 5)", given_away, "<= 0.02"))
        found.append(Row(f"{name}: the commonest answer of any question type", _commonest(world, numbers, quick), "<= 0.05"))
    return found


async def _solved(world: str, hops: int, tasks: int) -> float:
    env = DeepSearch(world, hops)
    total = 0.0
    for seed in range(tasks):
        await env.reset(seed=seed)
        for _ in range(TURNS):
            step = await env.step(await env.oracle())
            if step.terminated:
                total += step.reward
                break
    return total / tasks


def _given_away(world: World, index: Bm25Index, hops: int, tasks: int) -> float:
    found = 0
    for seed in range(tasks):
        question = world.graph.ask(derive(seed, "benchmark", hops), hops)
        found += str(question.path[-1]) in [hit.document.id for hit in index.search(question.text, 5)]
    return found / tasks


def _commonest(world: World, numbers: Sequence[int], quick: bool) -> float:
    """The share of the commonest answer in the question type where it is greatest."""
    types: dict[tuple[int, str], Counter[str]] = {}
    for hops in numbers:
        for seed in range(1000 if quick else 10_000):
            question = world.graph.ask(derive(seed, "answers", hops), hops)
            types.setdefault((hops, question.type), Counter())[question.answers[0]] += 1
    return max(max(counts.values()) / counts.total() for counts in types.values() if counts.total() >= 50)


def _survival(actions: int) -> list[Row]:
    async def outside(texts: Sequence[str], random: bool) -> int:
        env = DeepSearch(hops=3)
        bad, ended = 0, True
        for number in range(actions):
            if ended:
                await env.reset(seed=number)
            step = await env.step(await env.sample_random_action() if random else texts[number % len(texts)])
            bad += not 0.0 <= step.reward <= 1.0
            ended = step.terminated
        return bad

    texts = [*SHORT.values(), *(grow(300) for grow in GROWING.values())]
    bad = [asyncio.run(outside(texts, random)) for random in (True, False)]
    return [
        Row(f"{actions} {kind} actions: rewards out of range", number, "<= 0")
        for kind, number in zip(("random", "hostile"), bad, strict=True)
    ]


def _costs(quick: bool, folder: Path) -> list[Row]:
    documents = 20_000 if quick else 100_000
    world = invented(1, documents)
    build = min(_cpu_of_build(world, folder / f"large-{number}") for number in range(1 if quick else 3))
    index = Bm25Index(folder / "large-0")
    draw = derive(0, "queries")
    names = [world.graph.names[int(draw.integers(documents))] for _ in range(500)]
    cold, *rounds = ([world.graph.ask(draw, 2).text for _ in range(200)] for _ in range(1 + ROUNDS))
    return [
        Row(f"BM25, {documents} documents: s to build", build, "<= 5"),
        Row(f"BM25, {documents} documents: ms per search by name, median", _ms(index, names), "<= 0.5"),
        Row(
            f"BM25, {documents} documents: ms per search with one of the first 200 whole questions, median",
            _ms(index, cold),
            "",
        ),
        Row(
            f"BM25, {documents} documents: ms per search with a whole question after them, least median of {ROUNDS} rounds",
            min(_ms(index, questions) for questions in rounds),
            "<= 0.5",
        ),
        *_dense_rows(1000 if quick else 5000, folder),
    ]


def _dense_rows(documents: int, folder: Path) -> list[Row]:
    """The rows of dense search, or one that misses its limit, because everything else can be measured without faiss."""
    try:
        return _dense(invented(2, documents), folder)
    except MissingExtra as error:
        return [Row(f"dense, {documents} documents: measured ({error})", 0, ">= 1")]


def _cpu_of_build(world: World, place: Path) -> float:
    start = time.process_time()
    build_index(world.documents, place)
    return time.process_time() - start


def _ms(index: Bm25Index, queries: Sequence[str]) -> float:
    times = []
    for query in queries:
        start = time.process_time()
        index.search(query, 3)
        times.append(time.process_time() - start)
    return statistics.median(times) * 1e3


def hashed_words(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """An embedder for this benchmark: counts of hashed words."""
    vectors = np.zeros((len(texts), WIDTH), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            vectors[row, int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest(), "big") % WIDTH] += 1
    return vectors


def _dense(world: World, folder: Path) -> list[Row]:
    size = len(world.documents)
    start = time.process_time()
    build_dense_index(world.documents, folder / "dense", hashed_words)
    build = time.process_time() - start
    index = DenseIndex(folder / "dense", hashed_words)
    times, found = [], 0
    for document in world.documents[:: max(1, size // 200)]:
        start = time.process_time()
        (hits,) = index.search([document.title], 3)
        times.append(time.process_time() - start)
        found += document in [hit.document for hit in hits]
    return [
        Row(f"dense, {size} documents, hashed words: s to build", build, ""),
        Row(f"dense, {size} documents, hashed words: ms per search by name, median", statistics.median(times) * 1e3, ""),
        Row(f"dense, {size} documents, hashed words: share of names found in the top 3", found / len(times), ""),
    ]


def _same(folder: str) -> Row:
    """How many different fingerprints 1, 2 and 8 workers and two hash seeds give."""
    script = ROOT / "tests" / "envs" / "deepsearch" / "episodes.py"
    found = set()
    for workers in (1, 2, 8):
        for hash_seed in ("0", "1"):
            environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PALESTRA_HOME": f"{folder}/{workers}-{hash_seed}"}
            run = subprocess.run(
                [sys.executable, str(script), str(workers), "200"], env=environment, capture_output=True, text=True, check=True
            )
            found.add(run.stdout.strip())
    return Row("different fingerprints with 1, 2 and 8 workers and two hash seeds", len(found), "<= 1")
