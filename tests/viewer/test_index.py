import json
from array import array
from pathlib import Path

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import encode_json
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn
from palestra.viewer import index
from palestra.viewer.index import RunIndex, open_runs
from palestra.viewer.summary import Summariser
from palestra.viewer.view import export_runs


def trajectory(seed: int, text: str = "hello") -> Trajectory:
    return Trajectory(Task("game:X-v0", seed), StopReason.TERMINATED, (Turn("o", Completion(text), 1.0),))


def write(folder: Path, *trajectories: Trajectory) -> Path:
    folder.mkdir(exist_ok=True)
    with open(folder / "trajectories.jsonl", "ab") as file:
        file.writelines(encode_json(trajectory) + b"\n" for trajectory in trajectories)
    return folder


def opened(folder: Path) -> RunIndex:
    (run,) = open_runs([folder])
    run.refresh()
    return run


def test_lines_come_back_to_the_letter(tmp_path: Path) -> None:
    episodes = [trajectory(seed, "ü" * seed) for seed in range(5)]
    run = opened(write(tmp_path / "run", *episodes))
    assert [run.line(number) for number in range(len(run))] == [encode_json(episode) for episode in episodes]
    assert run.name == "run"


@pytest.mark.parametrize("number", [-1, 1])
def test_there_is_no_line_outside(tmp_path: Path, number: int) -> None:
    with pytest.raises(IndexError):
        opened(write(tmp_path, trajectory(0))).line(number)


def test_a_torn_last_line_waits_and_a_broken_one_is_named(tmp_path: Path) -> None:
    whole = encode_json(trajectory(1)) + b"\n"
    (tmp_path / "trajectories.jsonl").write_bytes(whole + whole[:20])
    run = opened(tmp_path)
    assert len(run) == 1
    (tmp_path / "trajectories.jsonl").write_bytes(whole + whole)
    run.refresh()
    assert len(run) == 2
    (tmp_path / "trajectories.jsonl").write_bytes(whole + b"{}\n")
    with pytest.raises(SchemaError, match="line 2"):
        opened(tmp_path)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index is kept for however small a run, in the folder that comes back."""
    monkeypatch.setattr(index, "_WORTH_KEEPING", 1)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("PALESTRA_HOME", str(home))
    return home / "views"


def test_the_index_is_used_and_extended(tmp_path: Path, eager: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(write(tmp_path, *(trajectory(seed) for seed in range(5))))
    assert [path.name for path in tmp_path.iterdir()] == ["trajectories.jsonl"]
    assert len(list(eager.iterdir())) == 1
    write(tmp_path, trajectory(5))
    added: list[bytes] = []
    plain = Summariser.add

    def noting(self: Summariser, line: bytes) -> None:
        added.append(line)
        plain(self, line)

    monkeypatch.setattr(Summariser, "add", noting)
    run = opened(tmp_path)
    assert len(run) == 6
    assert added == [encode_json(trajectory(5)) + b"\n"]
    assert run.columns.task.values == [f"seed {seed}" for seed in range(6)]


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_an_index_that_does_not_fit_is_made_anew(tmp_path: Path, eager: Path, damage: bytes | None) -> None:
    opened(write(tmp_path, trajectory(0), trajectory(1)))
    if damage is None:
        (tmp_path / "trajectories.jsonl").unlink()
        write(tmp_path, trajectory(7), trajectory(8))
    else:
        next(eager.iterdir()).write_bytes(damage)
    run = opened(tmp_path)
    assert len(run) == 2
    assert json.loads(run.line(0))["task"]["seed"] == (7 if damage is None else 0)


def hostile_index(file: Path, ends: bytes) -> bytes:
    """An index with the right fingerprint that says of ``file`` what it likes."""
    covered = file.stat().st_size
    columns = opened(file.parent).columns
    return msgspec.msgpack.encode(index._Stored(index._VERSION, covered, index._fingerprint(file, covered), ends, columns))


@pytest.mark.parametrize("ends", ["not a multiple of eight", "one episode of all", "none"])
def test_a_hostile_index_hides_nothing(tmp_path: Path, eager: Path, ends: str) -> None:
    file = write(tmp_path, trajectory(0), trajectory(1), trajectory(2)) / "trajectories.jsonl"
    lies = {"not a multiple of eight": b"123", "one episode of all": array("q", [file.stat().st_size]).tobytes(), "none": b""}
    lie = hostile_index(file, lies[ends])
    (tmp_path / "trajectories.index").write_bytes(lie)  # beside the run, as it would come in a stranger's folder
    next(eager.iterdir()).write_bytes(lie)  # and in our own, for what a crash may leave there
    run = opened(tmp_path)
    assert [json.loads(line)["task"].get("seed", 0) for line in run.lines()] == [0, 1, 2]
    assert len(run.columns) == 3


def test_a_home_that_cannot_be_written_is_no_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_WORTH_KEEPING", 1)
    (tmp_path / "home").write_text("a file where a folder should be")
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))
    assert len(opened(write(tmp_path / "run", trajectory(0), trajectory(1)))) == 2


def test_a_file_that_shrank_is_read_again(tmp_path: Path) -> None:
    run = opened(write(tmp_path, trajectory(0), trajectory(1)))
    (tmp_path / "trajectories.jsonl").write_bytes(encode_json(trajectory(9)) + b"\n")
    run.refresh()
    assert len(run) == len(run.columns) == 1


def test_a_run_is_read_in_slices(tmp_path: Path) -> None:
    (run,) = open_runs([write(tmp_path, *(trajectory(seed) for seed in range(3)))])
    seen = []
    while run.page.read < 1.0:
        run.refresh(0.0)
        seen.append(len(run))
    assert seen == [1, 2, 3]


@given(needle=st.text(min_size=1, max_size=5))
@example(needle='r\n"t')
def test_search_finds_text_as_it_was_written(tmp_path_factory: pytest.TempPathFactory, needle: str) -> None:
    needle = needle.encode("utf-8", "replace").decode()
    run = opened(write(tmp_path_factory.mktemp("run"), trajectory(0, "apple"), trajectory(1, f"a {needle} b")))
    assert run.search(f"a {needle} b") == [1]
    assert 1 in run.search(needle)


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run"):
        open_runs([tmp_path])


def test_a_folder_of_runs_opens_all_of_them(tmp_path: Path) -> None:
    write(tmp_path / "b", trajectory(0))
    (tmp_path / "may").mkdir()
    write(tmp_path / "may" / "a", trajectory(1), trajectory(2))
    (tmp_path / "trained" / "checkpoints").mkdir(parents=True)
    (tmp_path / "trained" / "metrics.jsonl").write_text('{"step": 1}\n')
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "b")
    assert [run.name for run in open_runs([tmp_path])] == ["b", "a", "trained"]


def test_runs_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    for side in "ab":
        (tmp_path / side).mkdir()
        write(tmp_path / side / "run", trajectory(0))
    names = [run.name for run in open_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"])]
    assert names == [str(tmp_path / "a" / "run"), str(tmp_path / "b" / "run")]


def test_export_holds_every_episode_of_every_run(tmp_path: Path) -> None:
    folders = [write(tmp_path / "a", trajectory(0), trajectory(1)), write(tmp_path / "b", trajectory(2))]
    export_runs(folders, tmp_path / "page.html")
    html = (tmp_path / "page.html").read_text()
    assert [f'id="episode-{key}"' in html for key in ("0-0", "0-1", "1-0", "1-1")] == [True, True, True, False]
    assert "<title>a, b</title>" in html


def test_a_training_run_need_not_have_kept_an_episode(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 0, "reward": 0.5, "note": "text"}\n{"step": 1, "rew')
    run = opened(tmp_path)
    assert (len(run), run.page.trained, run.page.read) == (0, True, 1.0)
    assert json.loads(run.metrics()) == [{"step": 0, "reward": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("nonsense\n")
    with pytest.raises(SchemaError, match=r"metrics\.jsonl"):
        opened(tmp_path).metrics()


def test_the_step_of_an_episode(tmp_path: Path) -> None:
    one = Trajectory(Task("x:y"), StopReason.TERMINATED, info={"step": 7})
    run = opened(write(tmp_path, one, trajectory(0)))
    assert run.columns.step == [7, -1]
    assert run.metrics() == b"null"
