"""The pages of the suite: one for every family, none left over, and a score for every id that can be played anywhere."""

import importlib
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from palestra.registry import EnvSpec, Need, list_envs

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference" / "suite"


COMMAND = 'Type: python docs/generate.py all "PATTERN", where PATTERN matches the ids of the family, such as "game:Nim*"'


@cache
def shipped() -> frozenset[str]:
    """The ids that a fresh process lists: other tests of this process may have registered some of their own."""
    done = subprocess.run([sys.executable, "-m", "palestra.cli", "list", "--json"], check=True, capture_output=True)
    return frozenset(row["id"] for row in json.loads(done.stdout))


def shipped_envs(pattern: str = "*") -> list[EnvSpec]:
    return [known for known in list_envs(pattern) if known.id in shipped()]


@pytest.fixture
def generate(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = importlib.import_module("docs.generate")
    monkeypatch.setattr(module, "list_envs", shipped_envs)
    return module


@pytest.mark.parametrize("name", ["commands", pytest.param("recipes", marks=pytest.mark.torch)])
def test_a_generated_page_is_what_the_code_says(name: str) -> None:
    module: Any = importlib.import_module(f"docs.generate_{name}")
    assert module.PAGE.read_text() == module.page(), f"run: python docs/generate_{name}.py"


def test_every_family_has_a_page_and_every_page_a_family(generate: Any) -> None:
    expected = {f"{name}.md" for name in (*generate.families(), *generate.WORLDS)} | {"index.md"}
    found = {path.name for path in FOLDER.glob("*.md")}
    assert expected <= found, f"docs/reference/suite lacks {sorted(expected - found)}. {COMMAND}"
    assert found <= expected, f"no family has a page {sorted(found - expected)} in docs/reference/suite: remove it"


def test_a_page_whose_extra_is_missing_is_left_as_it_is(
    generate: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("GuessTheNumber", "math", "reasoning-games")
    pages = {name: specs for name, specs in generate.families().items() if name in names}
    monkeypatch.setattr(generate, "families", lambda: pages)
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr(generate, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(Need, "met", lambda need: not need.extra)
    for name in names:
        (tmp_path / f"{name}.md").write_text("as it was")
    generate.write_pages()
    assert (tmp_path / "GuessTheNumber.md").read_text() == (FOLDER / "GuessTheNumber.md").read_text()
    printed = capsys.readouterr().err
    for name, extra in {"math": "math", "reasoning-games": "reasoning"}.items():
        assert (tmp_path / f"{name}.md").read_text() == "as it was"
        assert re.search(rf"left as it is: {name}\.md, which needs the extra .*{extra}", printed)


def test_every_id_is_on_its_page(generate: Any) -> None:
    worlds = {name: shipped_envs(pattern) for name, (pattern, _) in generate.WORLDS.items()}
    for name, specs in (generate.families() | worlds).items():
        assert specs
        page = FOLDER / f"{name}.md"
        text = page.read_text() if page.exists() else ""
        absent = [known.id for known in specs if known.id not in text]
        assert absent == [], f"docs/reference/suite/{name}.md lacks {absent}. {COMMAND}"


def test_the_index_is_that_of_the_generator(generate: Any) -> None:
    same = (FOLDER / "index.md").read_text() == generate.gallery(generate.families())
    assert same, f"docs/reference/suite/index.md is not that of the generator. {COMMAND}"


def test_the_table_has_every_game_and_generator_with_an_interval(generate: Any) -> None:
    table = json.loads((FOLDER / "scores.json").read_text())
    wanted = {known.id for known in shipped_envs() if known.namespace in ("game", "rg") and not generate.is_bare(known)}
    missing = {id for id in wanted - set(table) if not id.startswith("game:WikiGame")}
    assert missing == set(), f"docs/reference/suite/scores.json lacks {sorted(missing)}. {COMMAND}"
    for row in table.values():
        for player in ("oracle", "random"):
            score = row[player]
            assert score is None or score["low"] <= score["mean"] <= score["high"]
            assert score is None or score["tasks"] == 200 or score["why"]
