"""The pages of the suite: one for every family, none left over, and a score for every id that can be played anywhere."""

import importlib.util
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


def generator() -> Any:
    found = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    module.list_envs = shipped_envs  # type: ignore[attr-defined]
    return module


def test_every_family_has_a_page_and_every_page_a_family() -> None:
    module = generator()
    expected = {f"{name}.md" for name in (*module.families(), *module.WORLDS)} | {"index.md"}
    found = {path.name for path in FOLDER.glob("*.md")}
    assert expected <= found, f"docs/reference/suite lacks {sorted(expected - found)}. {COMMAND}"
    assert found <= expected, f"no family has a page {sorted(found - expected)} in docs/reference/suite: remove it"


def test_a_page_whose_extra_is_missing_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = generator()
    names = ("GuessTheNumber", "math", "reasoning-games")
    pages = {name: specs for name, specs in module.families().items() if name in names}
    monkeypatch.setattr(module, "families", lambda: pages)
    monkeypatch.setattr(module, "FOLDER", tmp_path)
    monkeypatch.setattr(module, "PICTURES", tmp_path / "pictures")
    monkeypatch.setattr(Need, "met", lambda need: not need.extra)
    for name in names:
        (tmp_path / f"{name}.md").write_text("as it was")
    module.write_pages()
    assert (tmp_path / "GuessTheNumber.md").read_text() == (FOLDER / "GuessTheNumber.md").read_text()
    printed = capsys.readouterr().err
    for name, extra in {"math": "math", "reasoning-games": "reasoning"}.items():
        assert (tmp_path / f"{name}.md").read_text() == "as it was"
        assert re.search(rf"left as it is: {name}\.md, which needs the extra .*{extra}", printed)


def test_every_id_is_on_its_page() -> None:
    module = generator()
    worlds = {name: shipped_envs(pattern) for name, (pattern, _) in module.WORLDS.items()}
    for name, specs in (module.families() | worlds).items():
        assert specs
        page = FOLDER / f"{name}.md"
        text = page.read_text() if page.exists() else ""
        absent = [known.id for known in specs if known.id not in text]
        assert absent == [], f"docs/reference/suite/{name}.md lacks {absent}. {COMMAND}"


def test_the_index_is_that_of_the_generator() -> None:
    module = generator()
    same = (FOLDER / "index.md").read_text() == module.gallery(module.families())
    assert same, f"docs/reference/suite/index.md is not that of the generator. {COMMAND}"


def test_the_table_has_every_game_and_generator_with_an_interval() -> None:
    table = json.loads((FOLDER / "scores.json").read_text())
    module = generator()
    wanted = {known.id for known in shipped_envs() if known.namespace in ("game", "rg") and not module.is_bare(known)}
    missing = {id for id in wanted - set(table) if not id.startswith("game:WikiGame")}
    assert missing == set(), f"docs/reference/suite/scores.json lacks {sorted(missing)}. {COMMAND}"
    for row in table.values():
        for player in ("oracle", "random"):
            score = row[player]
            assert score is None or score["low"] <= score["mean"] <= score["high"]
            assert score is None or score["tasks"] == 200 or score["why"]


def test_the_oracle_reaches_what_can_be_reached() -> None:
    table = json.loads((FOLDER / "scores.json").read_text())
    short = {}
    for id, row in table.items():
        # Without a ceiling every task can be solved, for a total of 1. A ceiling is a mean over all tasks, of which 200 are a
        # sample: there the interval must reach it.
        reached = row["oracle"]["high"] if "ceiling" in row else row["oracle"]["mean"]
        if reached < 0.99 * row.get("ceiling", 1.0):
            short[id] = row["oracle"]
    assert short == {}
