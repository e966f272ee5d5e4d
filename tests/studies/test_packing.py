"""The packed form of results: the same tables and figures, later runs added, and nothing hostile in it is read or written."""

import lzma
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.cli.invoking import palestra
from tests.strangers import KINDS, Outside, is_link, refused_or_done
from tests.studies.results import result

from palestra.errors import UsageError
from palestra.studies import Cell, load_study, packing, read_results
from palestra.studies.packing import PACKED, read_packed, write_packed
from palestra.studies.page import study_section
from palestra.studies.results import RUNS, pack_results, played_path, read_played, result_path, unpack_results, write_result

STUDY = """
question = "Which is better?"
seeds = [0, 1]
held_out = 20
players = ["random"]

[environments."γ guess"]
recipe = "cpu/guess"

[arms]
ReBN = []
GRPO = []
"""
GUESS = "γ guess"


def add(folder: Path, arm: str, seed: int, after: float) -> None:
    write_result(result_path(folder, Cell(GUESS, arm, seed)), result(GUESS, arm, seed, after=after))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    add(folder, "ReBN", 0, 1.0)
    add(folder, "GRPO", 0, 0.25)
    write_result(played_path(folder, GUESS, "random"), result().before)
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_packed_study_has_the_same_tables_figures_and_numbers(study: Path) -> None:
    text, numbers = study_section(study, study), palestra("study", "show", study, "--json")
    figures = {name: content for name, content in files(study).items() if name.endswith(".svg")}
    assert "moved 3 results into runs.json.xz, which has 3" in palestra("study", "pack", study)
    assert set(files(study)) == {"study.toml", PACKED, *figures}
    for name in figures:
        (study / name).unlink()
    assert study_section(study, study) == text
    assert palestra("study", "show", study, "--json") == numbers
    assert {name: files(study)[name] for name in figures} == figures


def test_unpacking_gives_the_files_back_and_packing_again_the_same_bytes(study: Path) -> None:
    before = files(study)
    palestra("study", "pack", study)
    packed = (study / PACKED).read_bytes()
    assert "moved 3 results into runs" in palestra("study", "unpack", study)
    assert files(study) == before
    palestra("study", "pack", study)
    assert (study / PACKED).read_bytes() == packed


def test_a_later_run_is_added_and_replaces_a_result_of_the_same_name(study: Path) -> None:
    known = load_study(study)
    assert pack_results(study, known) == (3, 3)
    add(study, "ReBN", 1, 0.5)
    add(study, "ReBN", 0, 0.125)
    assert [result.after["success"][0] for result in read_results(study, known)] == [0.125, 0.5, 0.25]  # a file counts
    assert pack_results(study, known) == (2, 4)
    assert [result.after["success"][0] for result in read_results(study, known)] == [0.125, 0.5, 0.25]
    assert pack_results(study, known) == (0, 4)
    add(study, "ReBN", 0, 1.0)
    unpack_results(study)
    assert [result.after["success"][0] for result in read_results(study, known)] == [1.0, 0.5, 0.25]


@pytest.mark.torch
def test_a_run_whose_result_is_packed_is_not_made_again(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running = pytest.importorskip("palestra.studies.running")
    for name in ("run_cell", "play_reference"):
        monkeypatch.setattr(running, name, lambda *_: pytest.fail("made again"))
    known, lines = load_study(study), list[str]()
    for seed in known.seeds:
        for arm in known.arms:
            add(study, arm, seed, 0.5)
    pack_results(study, known)
    assert running.run_study(study, known, list(known.cells()), tmp_path / "work", lines.append) == 0
    assert lines == []
    assert not (study / RUNS).exists()


def test_files_that_are_no_results_of_the_study_stay(study: Path) -> None:
    stray = study / RUNS / "γguess" / "PPO-0.json"
    stray.write_bytes(b"{}")
    pack_results(study, load_study(study))
    assert [path.name for path in (study / RUNS).rglob("*.json")] == ["PPO-0.json"]


def test_a_damaged_result_is_refused_before_anything_is_packed(study: Path) -> None:
    played_path(study, GUESS, "random").path.write_bytes(b'{"success": [')
    before = files(study)
    with pytest.raises(UsageError, match=r"random\.json is not the result of a run"):
        pack_results(study, load_study(study))
    assert files(study) == before


def xz(text: str = "{}", **options: Any) -> bytes:
    return lzma.compress(text.encode(), **options)


HOSTILE: dict[str, Callable[[], bytes]] = {
    **{
        text[:40]: partial(xz, text)
        for text in (
            *('{"../../outside/new/x": 1}', '{"../x": 1}', '{"/etc/x": 1}', '{"x/..": 1}', '{"a/b/c": 1}', '{"a\\u0000/b": 1}'),
            *('{"a/b\\n": 1}', "[1]", '{"a/b": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"a/b": }'),
        )
    },
    "more after it": lambda: xz() + b"more",
    "two streams": lambda: xz() * 2,
    "torn": lambda: xz()[:-1],
    "another format": partial(xz, format=lzma.FORMAT_ALONE),
    "a large dictionary": partial(xz, filters=[{"id": lzma.FILTER_LZMA2, "dict_size": 2**27}]),
    "empty": bytes,
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_packed_file_is_refused_and_nothing_is_written(
    study: Path, tmp_path: Path, content: Callable[[], bytes]
) -> None:
    (study / PACKED).write_bytes(content())
    before = files(tmp_path)
    for work in (lambda: read_results(study, load_study(study)), lambda: unpack_results(study)):
        with pytest.raises(UsageError, match=r"runs\.json\.xz does not hold packed results"):
            work()
    with pytest.raises(UsageError):
        pack_results(study, load_study(study))
    assert files(tmp_path) == before


def test_a_bomb_is_refused_before_it_is_unpacked(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_LARGEST", 1000)
    write_packed(study, {"a/b": b"1" + b"0" * 980})
    assert list(read_packed(study)) == ["a/b"]
    write_packed(study, {"a/b": b"1" + b"0" * 1_000_000})
    with pytest.raises(UsageError, match="more than 1,000 bytes"):
        read_packed(study)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", [PACKED, RUNS, f"{RUNS}/γguess", f"{RUNS}/γguess/ReBN-1.json"])
def test_nothing_outside_a_study_is_read_or_written(study: Path, tmp_path: Path, name: str, kind: str) -> None:
    known = load_study(study)
    add(study, "ReBN", 1, 0.5)
    if name == PACKED:
        pack_results(study, known)
        add(study, "ReBN", 0, 0.125)
    outside = Outside(tmp_path / "outside")
    KINDS[kind](study / name, outside)
    works: list[Callable[[], object]] = [
        *(lambda: read_results(study, known), lambda: read_played(study, GUESS, ["random"])),
        *(lambda: pack_results(study, known), lambda: unpack_results(study)),
    ]
    refusals = [refused_or_done(work) for work in works]
    if is_link(kind):
        assert "is a link" in refusals[0]
    outside.check()
    outside.check_not_in(study)
