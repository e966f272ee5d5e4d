"""Panels: made by rule, kept in files, equal on every file system, and played by ``palestra eval --panel``."""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from palestra.authoring.panels import PanelTask
from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.evaluation import evaluate, report_markdown
from palestra.suite.panels import differences, list_panels, load_panel, panel_from_rules, panel_json, store
from palestra.suite.panels.catalog import PANELS, Rule
from palestra.trajectory import Task

GUESS, HANOI = "game:GuessTheNumber-v0-easy", "game:TowerofHanoi-v0-easy"


def few_guesses() -> list[PanelTask]:
    return [PanelTask(Task(GUESS, seed), f"Guess/{'even' if seed % 2 == 0 else 'odd'}") for seed in range(6)]


def few_towers() -> list[PanelTask]:
    return [PanelTask(Task(HANOI, seed), "Hanoi/all") for seed in range(3)]


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A panel of two games whose file is in a temporary folder."""
    rule = Rule("Two games.", (f"{__name__}:few_guesses", f"{__name__}:few_towers"))
    monkeypatch.setitem(PANELS, "small", rule)
    monkeypatch.setattr(store, "FILES", tmp_path)
    (tmp_path / "small.json").write_bytes(panel_json(panel_from_rules("small")))
    yield "small"
    load_panel.cache_clear()


def test_a_file_gives_back_the_panel_that_was_written(small: str) -> None:
    panel = load_panel(small)
    assert panel == panel_from_rules(small)
    assert list(panel) == [task for task, _ in (*few_guesses(), *few_towers())]
    assert differences(small) == []


def test_a_rule_that_changed_is_found(small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PANELS, "small", Rule("Two games.", (f"{__name__}:few_guesses",)))
    assert "the rules list 6 tasks and the file 9" in differences(small)[0]


def test_a_file_edited_by_hand_is_refused(small: str, tmp_path: Path) -> None:
    file = tmp_path / "small.json"
    file.write_bytes(file.read_bytes().replace(b'"seed":5', b'"seed":7'))
    load_panel.cache_clear()
    with pytest.raises(UsageError, match="does not match its own hash"):
        load_panel(small)


def test_an_unknown_name_gets_a_suggestion(small: str) -> None:
    with pytest.raises(UsageError, match='did you mean "small"'):
        load_panel("smal")


def test_the_report_has_the_columns_of_the_panel(small: str) -> None:
    report = evaluate(load_panel(small), "oracle")
    found = {section.name: (section.issued, section.scored) for section in report.groups}
    assert found == {"Guess": (6, 6), "Guess/even": (3, 3), "Guess/odd": (3, 3), "Hanoi": (3, 3), "Hanoi/all": (3, 3)}
    assert report.about["panel"] == load_panel(small).label
    text = report_markdown(report)
    assert "| solved % | Guess | Hanoi | all tasks |" in text
    assert "| Guess, solved % | even | odd | Overall |" in text
    assert "| oracle (privileged) | 100.00 | 100.00 | 100.00 |" in text


def test_the_command_plays_a_panel_and_records_its_hash(small: str, tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["eval", "oracle", "--panel", small, "-o", str(tmp_path / "run"), "-g", "2"])
    assert ran.exit_code == 0, ran.output
    assert json.loads((tmp_path / "run" / "config.json").read_text())["panel"] == load_panel(small).label
    assert "| Hanoi, solved % | all | Overall |" in ran.output
    both = CliRunner().invoke(app, ["eval", "oracle", "--panel", small, "--envs", GUESS])
    neither = CliRunner().invoke(app, ["eval", "oracle"])
    assert both.exit_code == neither.exit_code != 0


def changed(small: str, tmp_path: Path, **packages: str) -> None:
    """Let the panel's file say that one task began with another observation."""
    good = load_panel(small)
    entries = list(good.entries)
    entries[4] = msgspec.structs.replace(entries[4], sha256="0" * 16)
    bad = msgspec.structs.replace(good, entries=tuple(entries), packages={**good.packages, **packages})
    (tmp_path / "small.json").write_bytes(panel_json(bad))
    load_panel.cache_clear()


@pytest.mark.parametrize("options", [[], ["--wrapper", "KeepHistory"], ["--max-turns", "2"]])
def test_an_evaluation_ends_if_a_task_begins_otherwise(small: str, tmp_path: Path, options: list[str]) -> None:
    command = ["eval", "oracle", "--panel", small, "-o", str(tmp_path / "run"), *options]
    changed(small, tmp_path, numpy="1.0")
    ran = CliRunner().invoke(app, command)
    assert ran.exit_code != 0
    message = str(ran.exception)
    assert message.startswith(f"the panel small has changed: {GUESS}, seed 4, begins with another observation. Here is numpy ")
    assert message.endswith("instead of 1.0. Type: pip install numpy==1.0")


def test_every_committed_file_belongs_to_a_panel_and_every_panel_has_a_file() -> None:
    files = {file.stem for file in store.FILES.glob("*.json")}
    assert files == set(list_panels())
    for name in list_panels():
        assert load_panel(name).description
