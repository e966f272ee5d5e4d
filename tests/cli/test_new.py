import importlib.util
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from palestra.cli import main
from palestra.cli.new import new_env
from palestra.errors import UsageError
from palestra.foundation.installation import how_to_install
from tests.cli.invoking import palestra


@pytest.mark.parametrize("name", ["Game", "1game", "class", "a.b", "../up", "palestra", "game", "rg"])
def test_a_name_that_cannot_be_a_package_or_is_taken_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"is not the name of a package|is taken"):
        new_env(name, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new", "env", "mine", "-o", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_every_file_is_filled_in(tmp_path: Path) -> None:
    files = new_env("my-game", tmp_path / "new")
    texts = {str(file.relative_to(tmp_path / "new")): file.read_text() for file in files}
    assert {"pyproject.toml", "README.md", "train.toml", "src/my_game/env.py", "tests/test_env.py"} <= texts.keys()
    for path, text in texts.items():
        assert not any(mark in text for mark in ("{name}", "{package}", "{class}", "{id}")), path
        assert "my_game" in text or "MyGame" in text, path
    assert tomllib.loads(texts["pyproject.toml"])["project"]["name"] == "my-game"


def test_the_lines_to_type_install_what_they_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``scripts/authors_path.py`` types them all, in CI."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    printed = [line.strip() for line in palestra("new", "env", "my-game", "-o", tmp_path / "new").splitlines()]
    extras = tomllib.loads((tmp_path / "new/pyproject.toml").read_text())["project"]["optional-dependencies"]
    readme = (tmp_path / "new/README.md").read_text()
    assert any("pytest" in requirement for requirement in extras["test"])
    lines = ['pip install --editable ".[test]"', "python -m pytest"]
    assert [line for line in printed if line in lines] == lines
    assert all(f"$ {line}" in readme for line in lines)
    assert printed.index(how_to_install("train")) == printed.index("palestra train train.toml steps=2") - 1


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A generated package, installed beside itself with its entry point."""
    folder = tmp_path_factory.mktemp("new") / "my-game"
    new_env("my-game", folder)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", str(folder / "installed")]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(folder)], check=True, capture_output=True)
    return folder


def run(package: Path, command: Sequence[str]) -> str:
    paths = [str(package / "installed"), *sys.path]
    changed = {"PYTHONPATH": os.pathsep.join(paths), "PALESTRA_HOME": str(package / "home"), "PYTEST_ADDOPTS": ""}
    own: Any = {"env": {**os.environ, **changed}, "capture_output": True, "text": True}
    done = subprocess.run([sys.executable, "-m", *command], cwd=package, check=False, **own)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


@pytest.mark.gate
@pytest.mark.slow
def test_the_generated_package_passes_its_own_tests_and_check(package: Path) -> None:
    assert " passed" in run(package, ["pytest", "-q", "-p", "no:cacheprovider"])
    assert "MyGame-v0" in run(package, ["palestra.cli", "list", "my_game"])
    run(package, ["palestra.cli", "check", "my_game:MyGame-v0-hard", "-n", "30"])


@pytest.mark.slow
@pytest.mark.torch
def test_the_generated_package_trains_as_written(package: Path) -> None:
    run(package, ["palestra.cli", "train", "train.toml", "steps=2", "-o", "runs/two"])
    assert len((package / "runs/two/metrics.jsonl").read_text().splitlines()) == 2
