"""No code is written twice in ``src``. ``duplicates_allowed.json`` holds the duplicates that stay, each with a reason."""

import ast
import io
import json
import re
from collections import defaultdict
from itertools import combinations
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted(SOURCE.rglob("*.py"))
DUPLICATES = Path(__file__).with_name("duplicates_allowed.json")
SAME = 6
"""Equal lines in a row that count as a duplicate."""
MOST = 10
"""Pairs of places that may hold a duplicate."""


def code_lines(file: Path) -> list[str]:
    """The lines of ``file`` without imports, signatures, docstrings, comments and blank lines."""
    source = file.read_text()
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left_out.update(range(node.lineno, node.body[0].lineno))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
    lines = (line.partition("#")[0].strip() for number, line in enumerate(source.splitlines(), 1) if number not in left_out)
    return [line for line in lines if line]


def suspects() -> list[Path]:
    """Files that share lines with another. pylint alone would compare every file with every other, for minutes."""
    where: dict[tuple[str, ...], set[Path]] = defaultdict(set)
    for file in FILES:
        lines = code_lines(file)
        for start in range(len(lines) - SAME + 1):
            where[tuple(lines[start : start + SAME])].add(file)
    return sorted({file for found in where.values() if len(found) > 1 for file in found})


@pytest.mark.slow
def test_every_duplicate_has_a_reason() -> None:
    from pylint.lint import Run
    from pylint.reporters.text import TextReporter

    shown = io.StringIO()
    ignored = [f"--ignore-{what}=y" for what in ("imports", "signatures", "docstrings", "comments")]
    words = ["--disable=all", "--enable=duplicate-code", f"--min-similarity-lines={SAME}", *ignored, *map(str, suspects())]
    Run(words, reporter=TextReporter(shown), exit=False)
    messages = shown.getvalue().split("R0801")[1:]
    pairs = [pair for text in messages for pair in combinations(sorted(re.findall(r"^==([\w.]+):\[", text, re.MULTILINE)), 2)]
    reasons = {tuple(one["files"]): one["reason"] for one in json.loads(DUPLICATES.read_text())}
    assert [pair for pair in pairs if pair not in reasons] == [], shown.getvalue()
    assert len(pairs) <= MOST
    assert sorted(set(reasons) - set(pairs)) == [], "these pairs are gone: remove them from the list"


def test_the_search_for_duplicates_finds_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "\n".join(f"value_{number} = compute({number})" for number in range(SAME))
    copies = [tmp_path / "a.py", tmp_path / "b.py"]
    copies[0].write_text(f'import os\n\n"""One docstring."""\n{body}\n')
    copies[1].write_text(body.replace("\n", "  # why\n\n"))
    (tmp_path / "c.py").write_text("value_0 = 1\n")
    monkeypatch.setattr("tests.test_house.FILES", [*copies, tmp_path / "c.py"])
    assert suspects() == copies
