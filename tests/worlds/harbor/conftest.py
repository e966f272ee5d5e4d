from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palestra.worlds.harbor.env import Harbor


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_HOME", str(tmp_path / "home"))


@pytest.fixture
async def made() -> AsyncIterator[list[Harbor]]:
    """The environments of a test, closed after it."""
    envs: list[Harbor] = []
    yield envs
    for env in envs:
        await env.close()
