"""Every command that a page shows can be typed: it parses as it stands, and the cheap ones are run."""

import re
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from palestra.cli import main
from palestra.cli.app import app
from palestra.evaluation import evaluate
from tests.docs.test_pages import PAGES, SNIPPETS, page_id

CHEAP = """
palestra list
palestra list "game:*-easy"
palestra doctor
palestra eval oracle --envs parity:Parity -n 50
palestra rollout random --envs parity:Parity -n 50
palestra compare runs/oracle runs/random
palestra view runs/a --export page.html
palestra export runs/a --to parquet && palestra import runs/a.parquet --from parquet -o runs/again
palestra index build corpus.jsonl corpus.index && palestra index search corpus.index "who invented the hash table"
palestra train cpu/guess --dry-run
"""
"""A line is one test: a command that needs what another one wrote stands behind it."""
NEEDS = {"parquet": "pyarrow", "index": "tantivy", "train": "torch"}


def shown(page: Path) -> list[str]:
    """The command lines on ``page``, without their comments."""
    lines = re.findall(r"^\$ (palestra .+)$", page.read_text(), re.MULTILINE)
    return [re.sub(r"\s+#.*$", "", line) for line in lines]


def parse(line: str) -> None:
    """Parse ``line`` as the command would, and run nothing."""
    found: Any = typer.main.get_command(app)
    rest = shlex.split(line)[1:]
    if rest[0].startswith("--"):  # an option of palestra itself, which ends the program
        assert rest[0] in {option for param in found.params for option in param.opts}
        return
    while hasattr(found, "commands"):
        name, *rest = rest
        assert name in found.commands, f"there is no command {name}"
        found = found.commands[name]
    found.make_context(found.name, rest)


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)], ids=page_id)
def test_a_command_on_a_page_parses(page: Path) -> None:
    for line in shown(page):
        parse(re.sub(r"[\[\]]|\.\.\.| >>? \S+$", "", line))  # a synopsis: [--out DIR], and where the shell writes the output


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_an_option_named_in_the_text_exists(page: Path) -> None:
    group: Any = typer.main.get_command(app)
    for command, rest in re.findall(r"`palestra ([a-z]+)((?: [^`]*)?)`", page.read_text()):
        found = group.commands.get(command)
        assert found is not None, f"{page.name} names palestra {command}"
        if hasattr(found, "commands"):
            inner = rest.split()[:1]
            if not inner or inner[0] not in found.commands:
                continue
            found = found.commands[inner[0]]
        known = {option for param in found.params for option in (*param.opts, *param.secondary_opts)} | {"--help", "-h"}
        used = set(re.findall(r"(?<=\s)--?[a-z][\w-]*", rest.replace("[", " ")))
        assert used <= known, f"{page.name}: palestra {command} has no {used - known}"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("workspace")
    (folder / "parity.py").write_text((SNIPPETS / "parity.py").read_text())
    (folder / "corpus.jsonl").write_text('{"text": "Luhn invented the hash table."}\n')
    for name in ("a", "oracle", "random"):
        player = "oracle" if name == "oracle" else "random"
        evaluate("game:GuessTheNumber-v0-easy", player, n=5, out=folder / "runs" / name)
    return folder


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(line, marks=[pytest.mark.slow] * line.startswith("palestra train"))  # torch takes seconds to load
        for line in CHEAP.strip().splitlines()
    ],
)
def test_a_cheap_command_runs_as_the_page_shows_it(
    line: str, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = line.split(" && ")
    for command in commands:
        assert any(command in shown(page) for page in PAGES), f"no page shows {command} any more"
    for word, module in NEEDS.items():
        if word in line:
            pytest.importorskip(module)
    monkeypatch.chdir(workspace)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for command in commands:
        assert main(shlex.split(command)[1:]) == 0, capsys.readouterr()
