"""Where torch is not installed, run ``pytest -m "not torch"``: modules that are about torch are then not even imported.

Selected without it they fail. A test that was left out silently proves nothing.
"""

import signal
from pathlib import Path

import pytest

# A shell that starts us in the background has Ctrl-C ignored, here and in all our children. Some tests are about Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

_MARK = b"pytestmark = pytest.mark.torch"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what the marker expression leaves out anyway, before its imports can fail."""
    unwanted = "not torch" in (config.option.markexpr or "")
    if unwanted and collection_path.suffix == ".py" and _MARK in collection_path.read_bytes():
        return True
    return None
