"""Folders that come from a stranger, or that something has damaged: no file outside is read or written, and no run is lost.

Each case takes one file of a good folder and puts one kind of thing in its place. Then the command that made the folder runs
again. Either it refuses in words, or it ends with the results of the undisturbed folder.
"""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import palestra
from palestra.cli.app import app
from palestra.errors import PalestraError
from palestra.evaluation import Budget, Report, regrade
from palestra.interchange import read_atif, write_atif
from palestra.rollouts import read_trajectories
from palestra.rollouts.options import RolloutOptions
from palestra.rollouts.recording import audit, recorded
from palestra.sandbox.layers import files_of
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.tools.search.documents import Document
from palestra.trajectory import Completion, Image, StopReason, Task, Text, Trajectory, Turn
from palestra.worlds.harbor.building import _sources
from palestra.worlds.harbor.reading import read_task
from tests.strangers import KINDS, SECRET, Outside, is_link, refused_or_done
from tests.worlds.harbor.folders import write

ENV = "game:GuessTheNumber-v0-easy"


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    files = Outside(tmp_path / "outside")
    yield files
    files.check()


# ------------------------------------------------------------------------------------------------------------- evaluations

EVALUATION_FILES = (
    ".lock",
    ".report.json.part",
    ".trajectories.jsonl.part",
    "vocabulary.json",
    "config.json",
    "trajectories.jsonl",
    "failed.jsonl",
    "report.json",
    "report.md",
    "report.html",
    "spending.log",
)


def evaluated(folder: Path) -> Report:
    return palestra.evaluate(ENV, "random", n=4, out=folder, concurrency=1, budget=Budget(tokens=10**9))


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "evaluation"
    evaluated(folder)
    return folder


def digests(folder: Path) -> list[str]:
    return sorted(one.digest() for one in read_trajectories(folder / "trajectories.jsonl"))


SAMPLED = {
    (name, kind)
    for name in ("trajectories.jsonl", "report.json", "spending.log", ".lock")
    for kind in ("link to a file", "hard link", "pipe")
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) in SAMPLED else pytest.mark.full)
        for name in EVALUATION_FILES
        for kind in KINDS
    ],
)
def test_an_evaluation_leaves_everything_outside_its_folder_alone(
    evaluation: Path, outside: Outside, tmp_path: Path, name: str, kind: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluation, folder)
    KINDS[kind](folder / name, outside)
    said = refused_or_done(lambda: evaluated(folder))
    if not said:
        assert digests(folder) == digests(evaluation)
    if is_link(kind) and not name.startswith("."):
        assert name in said, "a link is refused by name"
    refused_or_done(lambda: regrade(folder, out=tmp_path / "regraded"))
    outside.check_not_in(folder)
    outside.check_not_in(tmp_path / "regraded")


def test_an_evaluation_is_refused_before_the_first_episode_if_its_report_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "report.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PalestraError, match=r"report\.md is a link"):
        evaluated(folder)
    assert not (folder / "trajectories.jsonl").exists()


@pytest.mark.parametrize(
    "command", [("compare", "RUN", "RUN"), ("export", "RUN", "--to", "openai"), ("view", "RUN", "--export")]
)
@pytest.mark.parametrize("kind", ["link to a file", "relative link", "link to itself", "pipe", "folder"])
@pytest.mark.parametrize("name", ["trajectories.jsonl", "report.json", "report.html", "config.json", "vocabulary.json"])
def test_a_command_that_shows_a_strangers_run_shows_nothing_else(
    evaluation: Path, outside: Outside, tmp_path: Path, name: str, kind: str, command: tuple[str, ...]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluation, folder)
    KINDS[kind](folder / name, outside)
    out = [str(tmp_path / "out")] if "--export" in command else ["--out", str(tmp_path / "out")]
    words = [str(folder) if word == "RUN" else word for word in command] + (out if command[0] != "compare" else [])
    ended = CliRunner().invoke(app, words)
    assert ended.exception is None or isinstance(ended.exception, PalestraError | SystemExit), repr(ended.exception)
    assert SECRET.decode() not in ended.output
    if (tmp_path / "out").exists():
        assert SECRET not in (tmp_path / "out").read_bytes()


def test_an_episode_that_stands_twice_is_refused_before_anything_is_played(evaluation: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluation, folder)
    first, second, *_ = (folder / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "trajectories.jsonl").write_bytes(first + second + first)
    with pytest.raises(
        PalestraError, match=r"trajectories\.jsonl, line 3: member 0 of group \d was recorded before: remove the line"
    ):
        evaluated(folder)
    assert (folder / "trajectories.jsonl").read_bytes() == first + second + first


# ---------------------------------------------------------------------------------------------------------------- rollouts

ROLLOUT_FILES = ("config.json", "trajectories.jsonl", "failed.jsonl", "ledger", ".lock", ".config.json.part")


def recorded_in(folder: Path) -> None:
    async def play() -> None:
        async for _ in recorded(folder, [ENV], "random", RolloutOptions(n=3, concurrency=1)):
            pass

    asyncio.run(play())


@pytest.fixture(scope="module")
def rollout_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "rollout"
    recorded_in(folder)
    return folder


@pytest.mark.filterwarnings("ignore:.*the ledger lists:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ROLLOUT_FILES)
def test_a_rollout_leaves_everything_outside_its_folder_alone(
    rollout_folder: Path, outside: Outside, tmp_path: Path, name: str, kind: str
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(rollout_folder, folder)
    KINDS[kind](folder / name, outside)
    said = refused_or_done(lambda: recorded_in(folder))
    if is_link(kind) and not name.startswith("."):
        assert name in said, "a link is refused by name"
    if not said:
        assert digests(folder) == digests(rollout_folder)
        assert audit(folder).sound
    outside.check_not_in(folder)


# ----------------------------------------------------------------------------------------------------------------- imports


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "atif"
    turn = Turn((Text("look"), Image(b"picture")), Completion("a"), 1.0)
    write_atif([Trajectory(Task("e", 1), StopReason.TERMINATED, turns=(turn,))], folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["000000.json", "000000-0.png"])
def test_an_import_reads_nothing_outside_its_folder(
    documents: Path, outside: Outside, tmp_path: Path, name: str, kind: str
) -> None:
    folder = tmp_path / "atif"
    shutil.copytree(documents, folder)
    KINDS[kind](folder / name, outside)
    read: list[Trajectory] = []
    said = refused_or_done(lambda: read.extend(read_atif(folder)))
    if is_link(kind):
        assert f"{name} is a link" in said
        assert not read


# ---------------------------------------------------------------------------------------------------------- search indexes

CORPUS = [Document("a", "Fruit", "A banana is a yellow fruit."), Document("b", "Animals", "A dog is a loyal animal.")]
PART = "part-0000"
INDEX_FILES = (
    *("manifest.json", PART, f"{PART}/stems.txt", f"{PART}/documents.bin"),
    *(f"{PART}/{name}.npy" for name in ("starts", "entries", "counts", "lengths", "fields")),
)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("tantivy", reason="tantivy is not installed")
    folder = tmp_path_factory.mktemp("good") / "index"
    build_index(CORPUS, folder)
    return folder


def hits(folder: Path) -> list[tuple[str, float]]:
    return [(hit.document.text, hit.score) for hit in Bm25Index(folder).search("yellow fruit", 2)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", INDEX_FILES)
def test_an_index_is_read_from_its_folder_alone(index: Path, outside: Outside, tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "index"
    shutil.copytree(index, folder)
    KINDS[kind](folder / name, outside)
    found: list[tuple[str, float]] = []
    said = refused_or_done(lambda: found.extend(hits(folder)))
    if is_link(kind):
        assert "is a link" in said
    if not said:
        assert found == hits(index)


# --------------------------------------------------------------------------------------------------------- Harbor's tasks

TASK_FILES = (
    *("task.toml", "instruction.md", "environment", "environment/Dockerfile", "environment/data"),
    *("tests", "tests/test.sh", "tests/deep/data", "solution", "solution/solve.sh"),
)


def in_boxes(folder: Path) -> list[bytes]:
    """Everything that a task folder puts before an agent or into a box."""
    task = read_task(folder)
    (step,) = task.steps
    solution = [step.solution] if step.solution is not None else []
    files = [file for part in (*step.tests, *solution) for file in files_of(part, "x")]
    copied = _sources(task.environment, "data", "data", False, 1)
    return [step.instruction.encode(), *(file.content for file in (*files, *copied))]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", TASK_FILES)
def test_a_task_takes_no_file_from_outside_into_a_box(outside: Outside, tmp_path: Path, name: str, kind: str) -> None:
    folder = write(tmp_path / "task")
    for path in ("environment/data", "tests/deep/data", "solution/solve.sh"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("true\n")
    good = in_boxes(folder)
    KINDS[kind](folder / name, outside)
    taken: list[bytes] = []
    said = refused_or_done(lambda: taken.extend(in_boxes(folder)))
    if is_link(kind):
        assert said
    if kind != "hard link":
        assert SECRET not in taken
    assert said or len(taken) <= len(good)
