"""The page that tells how to check: its snippet runs, and it names every check."""

import subprocess
import sys
from pathlib import Path

from palestra.checking import CHECKS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/check-an-environment.md"
SNIPPET = ROOT / "docs/snippets/check_env.py"


def test_the_snippet_runs_as_a_script() -> None:
    environment = {"PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1", "COLUMNS": "120"}
    done = subprocess.run([sys.executable, str(SNIPPET)], env=environment, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ same task, same episode (this process, another process, another hash seed, replay)" in done.stdout
    assert "✗" not in done.stdout


def test_the_page_shows_the_snippet() -> None:
    assert SNIPPET.read_text(encoding="utf-8") in PAGE.read_text(encoding="utf-8")


def test_the_page_names_every_check() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [check.name for check in CHECKS]
