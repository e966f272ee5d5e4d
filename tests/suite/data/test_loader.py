import csv
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palestra.errors import MissingData, SchemaError, UsageError
from palestra.suite.data import load
from palestra.suite.data.field_map import parse
from palestra.suite.data.loader import numbered_rows

ROWS = [{"problem": "1+1?", "answer": "2"}, {"problem": "2+2?", "answer": "4"}, {"problem": "ünï\n?", "answer": "\\frac{1}{2}"}]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def expected_hash() -> str:
    """By hand: each row as JSON with its keys in order, its length in front."""
    hasher = hashlib.sha256()
    for row in ROWS:
        told = {"answer": row["answer"], "question": row["problem"]}
        encoded = json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode()
        hasher.update(len(encoded).to_bytes(8, "little") + encoded)
    return hasher.hexdigest()


@pytest.mark.parametrize("suffix", [".jsonl", ".csv", ".parquet"])
def test_every_format_gives_the_same_rows_and_the_same_hash(folder: Path, suffix: str) -> None:
    write(folder / "GSM8K" / f"train{suffix}", ROWS)
    rows = load("GSM8K")
    assert [row["question"] for row in rows.rows] == [row["problem"] for row in ROWS]
    assert rows.sha256 == expected_hash()


def test_missing_data_says_what_to_do(folder: Path) -> None:
    with pytest.raises(MissingData, match=r"palestra prefetch GSM8K.*train\.jsonl.*question, answer.*GSM8K"):
        load("GSM8K")


def test_what_the_datasets_library_cached_is_read_without_a_network(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    place = folder / "hub" / "axon-rl___gsm-8k" / "default" / "0.0.0" / "abc"
    place.mkdir(parents=True)
    table = pyarrow.Table.from_pylist(ROWS)
    with pyarrow.OSFile(str(place / "gsm-8k-train.arrow"), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    assert [row["answer"] for row in load("GSM8K").rows] == ["2", "4", "\\frac{1}{2}"]


def test_an_unknown_split_or_set_is_told(folder: Path) -> None:
    with pytest.raises(UsageError, match="there are math, amc"):
        load("math-eval", "gsm")
    with pytest.raises(UsageError, match="there are ASDiv2K"):
        load("GSM9K")


def test_a_row_without_its_fields_is_told(folder: Path) -> None:
    write(folder / "GSM8K" / "train.jsonl", [{"prompt": "?", "answer": "1"}])
    with pytest.raises(SchemaError, match=r'train\.jsonl:1: .*no field "problem"'):
        load("GSM8K")


@pytest.mark.parametrize("text", ["{", "[1]", '"x"'])
def test_a_broken_line_is_told_by_number(folder: Path, text: str) -> None:
    path = folder / "rows.jsonl"
    path.write_text('{"a": 1}\n\n' + text + "\n")
    with pytest.raises(SchemaError, match=r"rows\.jsonl:3"):
        list(numbered_rows(path))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=50)
@given(st.lists(st.fixed_dictionaries({"problem": TEXTS, "answer": TEXTS, "level": st.integers()}), min_size=1, max_size=5))
def test_jsonl_comes_back_as_it_was_written(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert [row for _, row in numbered_rows(write(tmp_path / "rows.jsonl", rows))] == rows


# the descriptions


@pytest.mark.parametrize("text", ["name = 3", 'name = "X"', "=", 'name = "X"\nabout = ""\nfield = 1\n[fields]\n'])
def test_a_bad_description_is_told(text: str) -> None:
    with pytest.raises(SchemaError):
        parse(text)


def test_an_empty_file_is_missing_data(folder: Path) -> None:
    (folder / "GSM8K").mkdir()
    (folder / "GSM8K" / "train.jsonl").write_text("")
    with pytest.raises(MissingData, match="no rows"):
        load("GSM8K")
