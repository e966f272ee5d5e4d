"""The driver of a run on a cluster shows the steps that the learner records."""

from pathlib import Path

import msgspec

from palestra.cluster.learner import _Steps


def record(folder: Path, *steps: int) -> None:
    with (folder / "metrics.jsonl").open("ab") as file:
        file.writelines(msgspec.json.encode({"step": step}) + b"\n" for step in steps)


def test_each_step_is_shown_once(tmp_path: Path) -> None:
    shown: list[int] = []
    steps = _Steps(tmp_path, lambda metrics: shown.append(metrics["step"]))
    steps.look()
    record(tmp_path, 1, 2, 3)
    steps.look()
    (tmp_path / "metrics.jsonl").unlink()
    record(tmp_path, 1, 2, 3, 4)  # by a learner that was restarted
    steps.look()
    assert shown == [1, 2, 3, 4]


def test_a_resumed_run_shows_the_steps_after_its_checkpoint(tmp_path: Path) -> None:
    record(tmp_path, 1, 2, 3)
    (tmp_path / "checkpoints" / "step-00000002").mkdir(parents=True)
    shown: list[int] = []
    _Steps(tmp_path, lambda metrics: shown.append(metrics["step"])).look()
    assert shown == [3]
