"""``module:Class`` in every command, as the installed script runs it: the working folder is not on its search path."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from palestra.cli.app import app

REACH = """
import palestra

class Reach(palestra.Env):
    def reset(self, *, seed=None, task=None):
        super().reset(seed=seed, task=task)
        self.goal = str(self.rng.integers(10**6))
        return f"Double {int(self.goal)}.", {}

    def step(self, action):
        correct = action.strip() == str(2 * int(self.goal))
        return palestra.Step("", float(correct), True, False, {"success": correct})

    def oracle(self):
        return str(2 * int(self.goal))

    def sample_random_action(self):
        return str(self.action_rng.integers(10**7))

class Slow(Reach):
    blocking = True

def twice(text):
    return str(2 * int(text.split()[1].strip(".")))
"""

RECIPE = 'steps = 1\nmodel.path = "nowhere"\nenvs."reach:Reach" = 1.0\n'
STUDY = 'question = "?"\nseeds = [0]\nheld_out = 1\nenvironments.reach.recipe = "recipe.toml"\narms.ReBN = []\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working folder with a module of the user's own."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "reach.py").write_text(REACH)
    (work / "recipe.toml").write_text(RECIPE)
    return work


def installed(folder: Path) -> list[str]:
    """A script like the one that pip installs: its own folder is on the search path, the working folder is not."""
    script = folder.parent / "bin" / "palestra"
    script.parent.mkdir(exist_ok=True)
    script.write_text("import sys\nfrom palestra.cli import main\nsys.exit(main())\n")
    return [sys.executable, str(script)]


def palestra(folder: Path, *arguments: str, typed: str = "") -> "subprocess.CompletedProcess[str]":
    line = [*installed(folder), *arguments]
    return subprocess.run(line, check=False, cwd=folder, input=typed, capture_output=True, text=True, timeout=300)


@pytest.mark.gate
@pytest.mark.parametrize(
    "arguments",
    [
        "check reach:Reach -n 5",
        "show reach:Reach",
        "play reach:Reach",
        "eval reach:twice --envs reach:Reach -n 3 -o run",
        "rollout oracle --envs reach:Slow -n 3 -o run",
        pytest.param("train recipe.toml --dry-run", marks=pytest.mark.torch),
    ],
)
@pytest.mark.slow
def test_a_class_in_the_working_folder_is_found_by(arguments: str, folder: Path) -> None:
    done = palestra(folder, *arguments.split(), typed="1\n")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.torch
def test_a_study_finds_a_class_in_the_working_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from palestra.studies import running

    (folder / "study.toml").write_text(STUDY)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(running, "run_study", lambda *_: 0 if importlib.util.find_spec("reach") else 1)
    assert CliRunner().invoke(app, ["study", "run", "."]).exit_code == 0


@pytest.mark.slow
def test_regrade_finds_a_class_in_the_working_folder_if_it_is_typed(folder: Path) -> None:
    assert palestra(folder, "eval", "oracle", "--envs", "reach:Reach", "-n", "3", "-o", "run").returncode == 0
    refused = palestra(folder, "regrade", "run")
    assert refused.returncode != 0
    assert "--envs" in refused.stdout
    done = palestra(folder, "regrade", "run", "--envs", "reach:Reach", "-o", "again")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "not regraded" not in done.stdout


@pytest.mark.slow
def test_serve_finds_a_class_in_the_working_folder(folder: Path) -> None:
    pytest.importorskip("starlette")
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*installed(folder), "serve", "reach:Slow"], cwd=folder, **pipes) as server:
        assert server.stdout is not None
        assert "serving" in server.stdout.readline()
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=300) == 0


@pytest.mark.ray
@pytest.mark.slow
def test_ray_workers_find_a_class_in_the_working_folder(folder: Path) -> None:
    pytest.importorskip("ray")
    cluster = ["--cluster", "local", "--workers", "1"]
    done = palestra(folder, "rollout", "oracle", "-e", "reach:Slow", "-n", "3", *cluster, "-o", "run")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "consumed 3" in done.stdout


@pytest.mark.slow
def test_the_working_folder_is_searched_last_and_only_for_a_reference(folder: Path) -> None:
    for shadowed in ("msgspec", "fractions", "rich"):
        (folder / f"{shadowed}.py").write_text("raise SystemExit('imported from the working folder')")
    assert palestra(folder, "check", "reach:Slow", "-n", "5").returncode == 0
    script = folder.parent / "paths.py"
    script.write_text(
        "import sys\nfrom palestra.registry import typed\n"
        "typed(['math:Sums', 'rg:letter_counting', 'game:*-easy', 'remote:http://h#reach:Reach'])\n"
        "print(len(sys.path)); typed(['reach:Reach', 'reach:Slow']); typed(['reach:Slow'])\n"
        "print(len(sys.path), sys.path[-1])\n"
    )
    shown = subprocess.run([sys.executable, str(script)], cwd=folder, capture_output=True, text=True, check=True).stdout.split()
    assert int(shown[1]) == int(shown[0]) + 1
    assert shown[2] == os.path.realpath(folder)


@pytest.mark.parametrize(
    ("source", "words"),
    [("def", "broken.py, line 1"), ("import palestra", "has no 'Env2'"), (None, "No module is called broken either")],
    ids=["syntax error", "no such name", "no such module"],
)
@pytest.mark.slow
def test_what_is_wrong_with_a_module_is_one_line(source: str | None, words: str, folder: Path) -> None:
    if source is not None:
        (folder / "broken.py").write_text(source)
    done = palestra(folder, "show", "broken:Env2")
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert words in line
