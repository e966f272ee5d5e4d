import tempfile
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_temporary_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that end in an unexpected error leave their traceback in a temporary file: here, where pytest clears up."""
    folder: Path = tmp_path_factory.getbasetemp() / "tracebacks"
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
