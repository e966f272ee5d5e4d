import json
from pathlib import Path

import pytest

import palestra
from palestra.envs.data import draw_panel, load, loader, read_panel
from palestra.errors import SchemaError

GAME = "game:GuessTheNumber-v0-easy"


def rows(folder: Path, answers: list[str]) -> None:
    (folder / "RuleTaker-d0").mkdir(exist_ok=True)
    lines = [json.dumps({"question": f"{place}?", "answer": answer}) for place, answer in enumerate(answers)]
    (folder / "RuleTaker-d0" / "train.jsonl").write_text("\n".join(lines))
    loader._load.cache_clear()


def test_a_panel_is_the_same_whenever_it_is_drawn_and_repeats_no_row(folder: Path) -> None:
    rows(folder, ["yes", "no"] * 10)
    panel = draw_panel("mine", ["logic:RuleTaker-d0", GAME], 15, seed=3)
    assert panel == draw_panel("mine", ["logic:RuleTaker-d0", GAME], 15, seed=3)
    assert panel.sha256 != draw_panel("mine", ["logic:RuleTaker-d0", GAME], 15, seed=4).sha256
    assert len({task.index for task in panel.tasks[:15]}) == 15
    assert panel.data == {"RuleTaker-d0/train": load("RuleTaker-d0").sha256}


def test_it_comes_back_from_its_file_and_can_be_played(folder: Path) -> None:
    rows(folder, ["yes", "no"] * 10)
    panel = draw_panel("mine", ["logic:RuleTaker-d0", GAME], 5)
    panel.write(folder / "panel.json")
    again = read_panel(folder / "panel.json")
    assert again == panel
    played = palestra.collect(again, "oracle")
    assert sorted(t.task.env for t in played) == sorted(task.env for task in panel)
    assert all(t.success for t in played)


def test_a_changed_list_or_changed_data_is_told(folder: Path) -> None:
    rows(folder, ["yes", "no"] * 10)
    path = folder / "panel.json"
    draw_panel("mine", ["logic:RuleTaker-d0"], 5).write(path)
    text = path.read_text()
    changed = json.loads(text)
    changed["tasks"][0]["index"] += 1
    path.write_text(json.dumps(changed))
    with pytest.raises(SchemaError, match="was changed"):
        read_panel(path)
    path.write_text(text)
    rows(folder, ["yes", "no"] * 9 + ["no", "no"])
    with pytest.raises(SchemaError, match="another RuleTaker-d0/train"):
        read_panel(path)
    path.write_text("[]")
    with pytest.raises(SchemaError, match="is not a panel"):
        read_panel(path)
