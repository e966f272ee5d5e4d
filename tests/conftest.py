"""Where torch is not installed, run ``pytest -m "not torch"``: modules that are about torch are then not even imported.

Selected without it they fail. A test that was left out silently proves nothing.
"""

from pathlib import Path

import pytest

_MARK = b"pytestmark = pytest.mark.torch"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what the marker expression leaves out anyway, before its imports can fail."""
    unwanted = "not torch" in (config.option.markexpr or "")
    if unwanted and collection_path.suffix == ".py" and _MARK in collection_path.read_bytes():
        return True
    return None
