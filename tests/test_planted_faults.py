"""``scripts/faults.py``: what it plants is a change, and what it leaves out is still there."""

import ast
import contextlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "faults.py"

SOURCE = '''
"""A module."""
from typing import TYPE_CHECKING

__all__ = ["grade"]
if TYPE_CHECKING:
    import numpy


def grade(score: float, least: int = 3) -> bool:
    """Not a statement that runs."""
    assert score >= 0
    if score < least and score != 1.5:
        note("größer", score)
        return not min(score, 1) == 2
    return -score + 1 > 0
'''
CHANGES = {
    "3 becomes 4",
    "3 becomes 2",
    "score < least becomes score <= least",
    "score < least becomes score >= least",
    "score != 1.5 becomes score == 1.5",
    "1.5 becomes 2.5",
    "1.5 becomes 0.5",
    "score < least and score != 1.5 becomes score < least or score != 1.5",
    "score < least and score != 1.5 becomes score < least",
    "score < least and score != 1.5 becomes score != 1.5",
    "if score < least and score != 1.5 is negated",
    "note('größer', score) becomes note(score, 'größer')",
    "removed: note('größer', score)",
    "not min(score, 1) == 2 becomes min(score, 1) == 2",
    "min(score, 1) == 2 becomes min(score, 1) != 2",
    "min(score, 1) becomes max(score, 1)",
    "1 becomes 2",
    "1 becomes 0",
    "2 becomes 3",
    "2 becomes 1",
    "returns None, not not min(score, 1) == 2",
    "returns None, not -score + 1 > 0",
    "-score + 1 > 0 becomes -score + 1 >= 0",
    "-score + 1 > 0 becomes -score + 1 <= 0",
    "-score + 1 becomes -score - 1",
    "-score becomes score",
    "0 becomes 1",
    "0 becomes -1",
}


@pytest.fixture(scope="module")
def faults() -> ModuleType:
    spec = importlib.util.spec_from_file_location("faults", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["faults"] = module
    spec.loader.exec_module(module)
    del sys.modules["faults"]
    return module


def planted(faults: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setattr(faults, "ROOT", folder)
    (folder / "module.py").write_text(SOURCE)
    return [fault for statement in faults.faults_of(folder / "module.py") for fault in statement]


def test_every_kind_of_fault_is_found_in_a_source(faults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {fault.change for fault in planted(faults, tmp_path, monkeypatch)} == CHANGES


def test_a_planted_fault_changes_one_place_and_parses(
    faults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every, source = planted(faults, tmp_path, monkeypatch), SOURCE.encode()
    assert len({fault.key for fault in every}) > 20
    for fault in every:
        changed = source[: fault.start] + fault.replacement.encode() + source[fault.stop :]
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(source)), fault.change


def test_the_seed_draws_the_same_faults_again(faults: ModuleType) -> None:
    first, again, other = (faults.draw("statistics", seed, 20, ()) for seed in (1, 1, 2))
    assert first == again != other
    assert [fault.key for fault in faults.draw("statistics", 1, 20, {first[0].key})][:19] == [fault.key for fault in first[1:]]


@pytest.mark.slow
def test_every_area_has_enough_statements_and_its_tests_exist(faults: ModuleType) -> None:
    for area, (_, tests) in faults.AREAS.items():
        assert len(faults.draw(area, 0, 40, ())) == 40, area
        assert all((SCRIPT.parents[1] / test).exists() for test in tests), area


@pytest.mark.slow
def test_faults_that_are_left_out_are_still_possible_and_have_a_reason(faults: ModuleType) -> None:
    keys = {
        fault.key
        for sources, _ in faults.AREAS.values()
        for source in sources
        for path in faults._files(source)
        for statement in faults.faults_of(path)
        for fault in statement
    }
    reasons = faults.equivalents()
    assert not reasons.keys() - keys, "remove or rewrite entries of scripts/faults_equivalent.toml whose statement has changed"
    assert all(len(reason) > 20 for reason in reasons.values())


def test_of_equal_statements_the_one_at_the_line_is_planted_again(
    faults: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    monkeypatch.setitem(faults.AREAS, "module", (["module.py"], []))
    (tmp_path / "module.py").write_text("def both():\n    note(1)\n    note(1)\n    note(1)\n")
    third = next(fault for fault in faults._statements_of("module")[1] if "removed" in fault.change)
    assert third.line == 3
    assert [fault.line for fault in faults._planted_before("module", {"x": third._asdict()})] == [3]


CORE = ("adapters", "training/algorithms")


def test_each_room_has_one_fault_and_the_core_comes_first(faults: ModuleType) -> None:
    drawn = faults.draw_rooms(5, CORE, ())
    assert list(drawn)[:4] == [".", "adapters", "adapters/workers", "training/algorithms"]
    for room, fault in drawn.items():
        assert Path(fault.path).parent == Path("src/palestra") / room
    assert drawn == faults.draw_rooms(5, CORE, ()) != faults.draw_rooms(5, CORE, {drawn["."].key})


@pytest.fixture
def tree(tmp_path: Path) -> SimpleNamespace:
    for name, text in {
        "src/palestra/core.py": "A = 1\n\n\ndef f():\n    return A\n",
        "tests/test_a.py": "",
        "tests/test_b.py": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return SimpleNamespace(folder=tmp_path, planted=lambda _: contextlib.nullcontext())


def test_a_recording_counts_results_of_unchanged_files_and_shares_what_fixtures_reach(
    faults: ModuleType, tree: SimpleNamespace
) -> None:
    (tree.folder / "records").mkdir()
    now = faults._digest([tree.folder / "tests/test_a.py"])
    rows: list[dict[str, Any]] = []

    def record(test: str, stage: str, outcome: str, setup: list[int], call: list[int], digest: str = now, at: int = 1) -> None:
        rows.extend(
            {"context": f"{digest} {phase} {test}", "lines": {"src/palestra/core.py": lines}}
            for phase, lines in (("setup", setup), ("call", call))
        )
        rows.append({"test": test, "digest": digest, "stage": stage, "outcome": outcome, "seconds": 1.0, "at": at})

    record("tests/test_a.py::fixture", "fast", "passed", [5], [])
    record("tests/test_a.py::shares", "gate", "passed", [], [])
    record("tests/test_a.py::fails", "fast", "failed", [], [5])
    record("tests/test_b.py::calls", "all", "failed", [], [])
    record("tests/test_b.py::calls", "all", "passed", [], [5], at=2)
    record("tests/test_b.py::imports", "fast", "passed", [], [1])
    record("tests/test_b.py::changed", "fast", "passed", [], [5], digest="old")
    (tree.folder / "records" / "0.5-1.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"cut off')
    recording = faults.GateRecording(tree.folder, tree)
    inside = faults.Fault("src/palestra/core.py", 5, "", "", 0, 27, 35, "")
    at_import = inside._replace(line=1, start=0, stop=5)
    assert recording.minutes == 1.5 / 60
    assert [recording.stage_of(inside, stage) for stage in faults.STAGES] == [
        ["tests/test_a.py::fixture"],
        ["tests/test_a.py::shares"],
        ["tests/test_b.py::calls"],
    ]
    assert recording.stage_of(at_import, "fast") == ["tests/test_a.py::fixture", "tests/test_b.py::imports"]


def test_a_test_that_fails_without_the_fault_has_not_noticed_it(
    faults: ModuleType, tree: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([("noticed", "a.py::x"), ("noticed", "a.py::x"), ("noticed", "a.py::y"), ("unnoticed", "")])
    asked: list[list[str]] = []

    def run(tests: list[str], *_: object) -> tuple[str, str]:
        asked.append(tests)
        return next(answers)

    monkeypatch.setattr(faults, "_run", run)
    log = tree.folder / "log"
    log.write_text("")
    assert faults.try_stage(None, ["a.py::x", "a.py::y"], {}, tree, log) == ("noticed", "a.py::y")
    assert asked == [["a.py::x", "a.py::y"], ["a.py::x"], ["a.py::y"], ["a.py::y"]]
