"""Folders that come from a stranger, or that something has damaged: no file outside is read or written, and no run is lost.

Each case takes one file of a good folder and puts one kind of thing in its place. Then the command that made the folder runs
again. Either it refuses in words, or it ends with the results of the undisturbed folder.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import palestra
from palestra.errors import PalestraError
from palestra.evaluation import Budget, Report, regrade
from palestra.interchange import read_atif, write_atif
from palestra.rollout import read_trajectories
from palestra.trajectory import Completion, Image, StopReason, Task, Text, Trajectory, Turn

ENV = "game:GuessTheNumber-v0-easy"
SECRET = b"SECRET: one line without a line break"


class Outside:
    """Files of the user beside the stranger's folder. ``check`` fails if one was changed, removed or added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "deep").mkdir(parents=True)
        (folder / "secret").write_bytes(SECRET)
        (folder / "deep" / "secret").write_bytes(SECRET)

    def check(self) -> None:
        files = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if path.is_file()}
        assert {name: path.read_bytes() for name, path in files.items()} == {"secret": SECRET, "deep/secret": SECRET}

    def check_not_in(self, folder: Path) -> None:
        """Fail if a file in ``folder`` has taken over what is outside."""
        for above, _, names in os.walk(folder):
            for path in (Path(above, name) for name in names):
                if not path.is_symlink() and path.is_file() and path.stat().st_nlink == 1:
                    assert SECRET not in path.read_bytes(), path


def _linked(path: Path, target: Path) -> None:
    _cleared(path)
    path.symlink_to(target)


def _cleared(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)


def _hard_linked(path: Path, outside: Outside) -> None:
    _cleared(path)
    os.link(outside.folder / "secret", path)


def _folder(path: Path, _: Outside) -> None:
    _cleared(path)
    path.mkdir()


def _pipe(path: Path, _: Outside) -> None:
    _cleared(path)
    os.mkfifo(path)


def _same_content_behind_link(path: Path, outside: Outside) -> None:
    """The file as it should be, behind a link: the most innocent one."""
    if path.is_file():
        copy = outside.folder.with_name("moved")
        copy.write_bytes(path.read_bytes())
        _linked(path, copy)
    else:
        _linked(path, outside.folder / "deep")


def _written(content: Callable[[bytes], bytes]) -> Callable[[Path, Outside], None]:
    def put(path: Path, _: Outside) -> None:
        path.write_bytes(content(path.read_bytes() if path.is_file() else b""))

    return put


KINDS: dict[str, Callable[[Path, Outside], None]] = {
    "link to a file": lambda path, outside: _linked(path, outside.folder / "secret"),
    "link to nothing": lambda path, outside: _linked(path, outside.folder / "new"),
    "link to a folder": lambda path, outside: _linked(path, outside.folder / "deep"),
    "relative link": lambda path, outside: _linked(path, Path(os.path.relpath(outside.folder / "secret", path.parent))),
    "link to itself": lambda path, _: _linked(path, path),
    "link to the same content": _same_content_behind_link,
    "hard link": _hard_linked,
    "folder": _folder,
    "pipe": _pipe,
    "half": _written(lambda data: data[: len(data) // 2]),
    "empty": _written(lambda _: b""),
    "garbage": _written(lambda _: bytes(range(256)) * 3 + b"\n" + b"\xff\0"),
}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    files = Outside(tmp_path / "outside")
    yield files
    files.check()


def refused_or_done(work: Callable[[], object]) -> str:
    """Return what the refusal says, empty if there is none. Anything but an error in words fails the test."""
    try:
        work()
    except PalestraError as error:
        return str(error)
    return ""


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


def check_evaluation(evaluation: Path, outside: Outside, tmp_path: Path, name: str, kind: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(evaluation, folder)
    KINDS[kind](folder / name, outside)
    said = refused_or_done(lambda: evaluated(folder))
    if not said:
        assert digests(folder) == digests(evaluation)
    if "link" in kind and kind != "hard link" and not name.startswith("."):
        assert name in said, "a link is refused by name"
    refused_or_done(lambda: regrade(folder, out=tmp_path / "regraded"))
    outside.check_not_in(folder)
    outside.check_not_in(tmp_path / "regraded")


@pytest.mark.parametrize("kind", ["link to a file", "hard link", "pipe"])
@pytest.mark.parametrize("name", ["trajectories.jsonl", "report.json", "spending.log", ".lock"])
def test_an_evaluation_leaves_everything_outside_its_folder_alone(
    evaluation: Path, outside: Outside, tmp_path: Path, name: str, kind: str
) -> None:
    check_evaluation(evaluation, outside, tmp_path, name, kind)


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", EVALUATION_FILES)
def test_an_evaluation_leaves_everything_outside_its_folder_alone_in_every_case(
    evaluation: Path, outside: Outside, tmp_path: Path, name: str, kind: str
) -> None:
    check_evaluation(evaluation, outside, tmp_path, name, kind)


def test_an_evaluation_is_refused_before_the_first_episode_if_its_report_cannot_be_written(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "report.md").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PalestraError, match=r"report\.md is a link"):
        evaluated(folder)
    assert not (folder / "trajectories.jsonl").exists()


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
    if "link" in kind and kind != "hard link":
        assert f"{name} is a link" in said
        assert not read
