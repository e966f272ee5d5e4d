import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from palestra.errors import UsageError
from palestra.training.exposing import PrometheusWriter, exposition

CONFIG: Any = None


def test_names_and_labels_keep_to_the_format() -> None:
    text = exposition('a "run"\\', {"reward": 0.5, "time/wait": 2, "note": "text", "step": 3})
    assert text.splitlines() == [
        "# TYPE palestra_training_reward gauge",
        'palestra_training_reward{run="a \\"run\\"\\\\"} 0.5',
        "# TYPE palestra_training_step gauge",
        'palestra_training_step{run="a \\"run\\"\\\\"} 3',
        "# TYPE palestra_training_time_wait gauge",
        'palestra_training_time_wait{run="a \\"run\\"\\\\"} 2',
    ]


def test_numbers_keep_all_their_digits() -> None:
    text = exposition("run", {"tokens": 123456789, "rate": 1234567.25, "on": True})
    assert [line.rpartition(" ")[2] for line in text.splitlines()[1::2]] == ["1", "1234567.25", "123456789"]


def test_the_latest_step_is_served_until_the_run_ends(tmp_path: Path) -> None:
    writer = PrometheusWriter(tmp_path / "mine", CONFIG, port=0)
    try:
        for step in (1, 2):
            writer({"step": step, "reward": 0.25})
        with urllib.request.urlopen(f"http://127.0.0.1:{writer.port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        assert 'palestra_training_step{run="mine"} 2' in text
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{writer.port}/other", timeout=10)
        with pytest.raises(UsageError, match="Choose another port"):
            PrometheusWriter(tmp_path, CONFIG, port=writer.port)
    finally:
        writer.close()
