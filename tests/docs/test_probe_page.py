"""The page of the probe shows the saved outcomes of ``benchmarks/probe.py``, and nothing else."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = {"yes": "can teach", "no": "cannot teach", "unclear": "may or may not teach"}


def test_the_table_is_that_of_the_saved_outcomes() -> None:
    saved = json.loads((ROOT / "docs/results/probe.json").read_text())
    page = (ROOT / "docs/how-to/probe.md").read_text()
    expected = []
    for name, one in saved.items():
        learnt = one["low"] > 0.0
        agrees = one["verdict"] == ("yes" if learnt else "no")
        gain = f"{one['gain']:+.2f} (from {one['low']:+.2f})"
        expected.append(f"| {name} | {WORDS[one['verdict']]} | {gain} | {'yes' if agrees else 'no'} |")
    assert re.findall(r"^\| .* \| \S*\d\.\d\d \(from .*$", page, re.MULTILINE) == expected
    agreed = sum(row.endswith("| yes |") for row in expected)
    assert f"{agreed} of {len(expected)} verdicts agree" in page
