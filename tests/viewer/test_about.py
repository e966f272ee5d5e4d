import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import palestra
from palestra.durable import Inside
from palestra.evaluation import read_report
from palestra.foundation.encoding import encode_json
from palestra.trajectory import Completion, StopReason, Task, Trajectory, Turn
from palestra.viewer.about import RunScores, read_about, scores_of
from palestra.viewer.index import open_runs
from palestra.viewer.summary import Columns, summarise

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@pytest.mark.gate
@given(config=st.dictionaries(st.text(), json_values))
@pytest.mark.slow
def test_any_config_is_read(tmp_path_factory: pytest.TempPathFactory, config: dict[str, object]) -> None:
    file = Inside(tmp_path_factory.mktemp("run")) / "config.json"
    file.path.write_text(json.dumps(config))
    about = read_about(file, file, report=False)
    assert all(len(value) <= 201 for value in about.settings.values())


def test_model_and_settings_of_a_training_run(tmp_path: Path) -> None:
    file = Inside(tmp_path) / "config.json"
    config = {"run": "training", "model": {"path": "smollm2"}, "policy": "sampled", "advantage": {"method": "grpo"}, "seed": 0}
    file.path.write_text(json.dumps(config))
    about = read_about(file, file, report=True)
    assert (about.kind, about.model, about.report) == ("training", "smollm2", True)
    assert about.settings == {"model.path": "smollm2", "advantage.method": "grpo", "seed": "0"}
    assert about.date.endswith("+00:00")


@pytest.mark.parametrize(
    "content", [b"", b"[1]", b"\xff", b"{", *(b'{"a":' * n + b"1" + b"}" * n for n in (950, 990, 5000))], ids=len
)
def test_a_damaged_or_deeply_nested_config_does_not_stop_the_viewer(tmp_path: Path, content: bytes) -> None:
    file = Inside(tmp_path) / "config.json"
    file.path.write_bytes(content)
    assert len(read_about(file, None, report=False).settings) <= (len(content) > 1000)


def test_no_episodes_have_no_scores() -> None:
    assert scores_of(Columns()) == RunScores()


@pytest.mark.parametrize("rewards", [(1e308, 1e308), (1e308, 1e308, -1e308), (1.7e308,), (-1e200,)])
def test_rewards_that_overflow_have_no_interval(rewards: tuple[float, ...]) -> None:
    turns = [tuple(Turn("", Completion(""), sign * reward) for reward in rewards) for sign in (1, -1, 1)]
    lines = [encode_json(Trajectory(Task("a", seed), StopReason.TERMINATED, of)) for seed, of in enumerate(turns)]
    assert scores_of(summarise(lines)) == RunScores()


def test_scores_are_those_of_the_report(tmp_path: Path) -> None:
    palestra.evaluate(["game:GuessTheNumber-v0-easy", "game:TicTacToe-v0"], "random", n=8, out=tmp_path / "run")
    (run,) = open_runs([tmp_path / "run"])
    run.refresh()
    scores, report = run.page.scores, read_report(tmp_path / "run")
    assert scores is not None
    assert scores.score == report.suite.score
    assert scores.success == report.suite.success
    assert scores.envs == {section.name: section.score for section in report.envs}


def test_a_run_that_was_stopped_has_no_interval_and_says_what_was_asked_for(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    palestra.evaluate("game:GuessTheNumber-v0-easy", "random", n=8, group_size=2, out=folder)
    lines = (folder / "trajectories.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "trajectories.jsonl").write_bytes(b"".join(lines[:13]))
    (run,) = open_runs([folder])
    run.refresh()
    assert run.page.scores == RunScores(asked=16)
    assert "asked" not in run.page.about.settings
