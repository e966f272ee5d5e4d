"""Metrics reach every writer of a recipe."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from palestra.training import TrainConfig, resolve
from palestra.training.writers import writing

pytestmark = pytest.mark.torch


class Lines:
    """Writes the number of every step into a file."""

    def __init__(self, folder: Path, config: TrainConfig) -> None:
        self.file = (folder / "steps.txt").open("a")

    def __call__(self, metrics: Mapping[str, Any]) -> None:
        self.file.write(f"{metrics['step']}\n")

    def close(self) -> None:
        self.file.close()


def test_the_folder_is_there_when_a_writer_is_made(tmp_path: Path) -> None:
    config = resolve("cpu/guess", [f"writers=['{__name__}:Lines']"])
    shown: list[int] = []
    with writing(config, tmp_path / "new" / "run", lambda metrics: shown.append(metrics["step"])) as write:
        write({"step": 1})
    assert shown == [1]
    assert (tmp_path / "new" / "run" / "steps.txt").read_text() == "1\n"
