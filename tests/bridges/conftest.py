"""What the contract tests of several bridges use: a tiny model and its tokenizer, built once."""

from pathlib import Path
from typing import Any

import pytest

from tests.bridges.bridging import GAME


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model that knows the words of the game."""
    from palestra.inference.models.tiny import build_tiny

    return build_tiny(tmp_path_factory.mktemp("model") / "tiny", envs=GAME)


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Any:
    import transformers

    return transformers.AutoTokenizer.from_pretrained(folder)
