from pathlib import Path

import pytest
from typer.testing import CliRunner

from palestra.cli import model
from palestra.cli.app import app
from palestra.errors import UsageError


def test_fetching_what_nobody_has_names_what_there_is() -> None:
    with pytest.raises(UsageError, match="smollm2"):
        CliRunner().invoke(app, ["model", "fetch", "nobody"], catch_exceptions=False)


def test_the_folder_is_printed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(model._FETCHERS, "smollm2", lambda out: out)
    done = CliRunner().invoke(app, ["model", "fetch", "smollm2", "-o", str(tmp_path)])
    assert done.output.strip() == str(tmp_path)
    monkeypatch.setattr(model, "build_tiny", lambda out, *, envs, seed: f"{out} {envs} {seed}")
    done = CliRunner().invoke(app, ["model", "tiny", "--seed", "3", "--envs", "game:Guess*"])
    assert done.output.strip() == "None game:Guess* 3"
