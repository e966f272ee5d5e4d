from pathlib import Path

from typer.testing import CliRunner

from palestra.cli.app import app
from palestra.rollout import TrajectoryWriter, collect

runner = CliRunner()


def test_view_exports_a_run(tmp_path: Path) -> None:
    with TrajectoryWriter(tmp_path / "run" / "trajectories.jsonl") as writer:
        for trajectory in collect("game:GuessTheNumber-v0-easy", "random", n=3):
            writer.write(trajectory)
    done = runner.invoke(app, ["view", str(tmp_path / "run"), "--export", str(tmp_path / "page.html")], catch_exceptions=False)
    assert done.output == f"wrote {tmp_path / 'page.html'}\n"
    assert 'id="episode-0-2"' in (tmp_path / "page.html").read_text()


def test_view_takes_a_folder_of_runs(tmp_path: Path) -> None:
    played = collect("game:GuessTheNumber-v0-easy", "random", n=1)
    for name in ("a", "b"):
        with TrajectoryWriter(tmp_path / "runs" / name / "trajectories.jsonl") as writer:
            writer.write(played[0])
    done = runner.invoke(app, ["view", str(tmp_path / "runs"), "--export", str(tmp_path / "page.html")], catch_exceptions=False)
    assert done.exit_code == 0
    html = (tmp_path / "page.html").read_text()
    assert 'id="episode-0-0"' in html
    assert 'id="episode-1-0"' in html
