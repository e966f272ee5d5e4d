"""``palestra plot``: runs that differ in their seed alone are one curve."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from palestra.cli.dashboard import Dashboard, plain_line, sparkline
from palestra.cli.plot import kinds
from palestra.plots.curves import Course, learning_curves, mean_and_band
from tests.cli.invoking import palestra


def run(folder: Path, rewards: list[float], **config: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config))
    lines = [
        json.dumps({"step": i, "reward": value, "tokens": 100, "seconds/learn": 2.0, **({"late": 1.0} if i else {})})
        for i, value in enumerate(rewards)
    ]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n" + '{"step": 99, "rew')
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [
        run(tmp_path / f"{method}-{seed}", [base + 0.1 * step for step in range(5)], seed=seed, advantage={"method": method})
        for method, base in (("grpo", 0.0), ("rebn", 0.5))
        for seed in range(3)
    ]


def test_seeds_are_one_curve_with_a_band(runs: list[Path], tmp_path: Path) -> None:
    palestra("plot", *runs, "-o", tmp_path / "c.svg")
    svg = (tmp_path / "c.svg").read_text()
    assert svg.count("<polygon") == 2
    assert svg.count("<polyline") == 2 * (3 + 1)
    assert "method grpo (3 runs)" in svg


def test_a_png_is_a_picture(runs: list[Path], tmp_path: Path) -> None:
    pytest.importorskip("resvg_py")
    palestra("plot", *runs, "-o", tmp_path / "c.png", "--x", "tokens", "--smooth", "3", "--by", "advantage.method")
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_kinds_are_named_by_what_differs() -> None:
    assert kinds([{"a": {"b": 1}, "seed": 0}, {"a": {"b": 2}, "seed": 1}]) == ["b 1", "b 2"]
    assert kinds([{"a": 1, "seed": 0}, {"a": 1, "seed": 1}]) == ["run", "run"]


def test_the_band_is_students_interval() -> None:
    steps = np.array([0.0, 1.0])
    courses = [Course(steps, np.array([value, value])) for value in (1.0, 2.0, 3.0)]
    _, mean, low, high = mean_and_band(courses)
    assert mean == pytest.approx([2.0, 2.0])
    assert high - mean == pytest.approx([4.3027 * 1.0 / 3**0.5] * 2, rel=1e-3)
    assert mean - low == pytest.approx(high - mean)


def test_runs_of_unequal_length_are_compared_where_all_have_been() -> None:
    long, short = Course(np.arange(10.0), np.arange(10.0)), Course(np.arange(4.0), np.zeros(4))
    places, mean, _, _ = mean_and_band([long, short])
    assert places.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert mean == pytest.approx([0.0, 0.5, 1.0, 1.5])


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50))
def test_any_course_can_be_drawn(values: list[float]) -> None:
    course = Course(np.arange(float(len(values))), np.array(values))
    svg = learning_curves({"a": {"k": [course, course]}, "b": {"k": [course]}})
    assert "nan" not in svg
    assert "inf" not in svg


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=200), st.integers(1, 50))
@example([1e308, 1e308, -1e308, -1e308], 2)
def test_a_sparkline_fits(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) <= width


def drawn(board: Dashboard) -> str:
    from rich.console import Console

    console = Console(width=100, record=True, file=io.StringIO())
    console.print(board.picture())
    return console.export_text()


def test_the_dashboard_shows_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    board = Dashboard("a run", 4, live=False)
    metrics = {"reward": 0.25, "success": 0.5, "staleness": 0, "seconds/learn": 1.0, "seconds/wait": 3.0}
    for step in range(1, 4):
        board.show({"step": step, **metrics})
    assert capsys.readouterr().out.splitlines()[-1] == "step 3/4  reward 0.250  success 50.0%  4.0 s"
    shown = drawn(board)
    assert "staleness" not in shown
    assert all(text in shown for text in ("reward", "step 3 of 4", "rollout 3.00 s"))
    with Dashboard("runs/x", 4, live=False):
        assert capsys.readouterr().out == "runs/x: 4 steps. The model is loaded and checked before the first.\n"
    assert plain_line({"step": 1, "staleness": 2}, 1) == "step 1/1  staleness 2  0.0 s"


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"constant_groups": 1, "members/used": 8}, "nothing was learned: all rewards of each group are equal"),
        ({"constant_groups": 0.5, "members/used": 8}, "nothing was learned: all advantages are 0"),
        ({"constant_groups": 0, "members/used": 0}, "nothing was learned: no episode could be used"),
    ],
)
def test_a_step_without_an_update_says_that_nothing_was_learned(metrics: dict[str, float], said: str) -> None:
    step = {"step": 2, "reward": 0.0, "updates": 0, **metrics}
    assert plain_line(step, 4) == f"step 2/4  reward 0.000  {said}  0.0 s"
    board = Dashboard("a run", 4, live=False)
    board.history.append(step)
    assert said in drawn(board)
    assert "nothing" not in plain_line({**step, "updates": 1, "gradient_norm": 0.5}, 4)
