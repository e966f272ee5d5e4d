from collections.abc import Iterator
from pathlib import Path

import pytest

from palestra.suite.data import loader


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty data folder, and no cache of anybody's."""
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "hub"))
    loader._load.cache_clear()
    yield tmp_path
    loader._load.cache_clear()
