"""Writes the page of bridges from ``constraints/`` and the results of the last runs: ``python docs/generate_bridges.py``."""

import json
import re
import sys
from pathlib import Path

PAGE = Path(__file__).parent / "reference" / "bridges.md"
CONSTRAINTS = Path(__file__).parent.parent / "constraints"
HEAD = """# Bridges: what was run, and when

A bridge connects Palestra with another framework; [other trainers](../how-to/other-trainers.md) and
[environments of other packages](../how-to/their-environments.md) show how to use each. This page says what of each framework
the contract tests run, with which version, and when they last passed. The framework is the released package, in a virtual
environment of its own. Models are tiny or scripted, and nothing needs a GPU.

`bash scripts/bridge.sh NAME` runs the tests of one bridge; NAME is a file of `constraints/` without `.txt`. The
script keeps the result in `constraints/results`, and writes this page.
Under "equal", *tokens* means: token ids, masks and log-probs in the framework equal those of `Trajectory.segments`, token by
token, over 200 random episodes of several turns with cuts and, where the framework can record them, failures. *Text* means:
observations, actions, rewards and ends are equal.

| framework | version | what was run | equal | tests | Python | date |
|---|---|---|---|---|---|---|
"""
READ = """
## Written from the source

These frameworks are not on PyPI, so no script installs them and runs tests. Their trainers were not run.

| framework | why |
|---|---|
"""


def header(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^# ([a-z-]+): (.*)$", file.read_text(), re.MULTILINE))


def page() -> str:
    run, read = [], []
    for file in sorted(CONSTRAINTS.glob("*.txt")):
        says = header(file)
        if "read" in says:
            read.append(f"| {says['framework']} | {says['read']} |")
            continue
        kept = CONSTRAINTS / "results" / f"{file.stem}.json"
        last = json.loads(kept.read_text()) if kept.exists() else {}
        cells = [
            says["framework"],
            f"{last['package']} {last['version']}" if last else "",
            says.get("runs", ""),
            says.get("equal", ""),
            f"{last['passed']} passed" if last else "not run yet",
            last.get("python", ""),
            last.get("date", ""),
        ]
        run.append(f"| {' | '.join(cells)} |")
    text = HEAD + "\n".join(run) + "\n"
    return text + (READ + "\n".join(read) + "\n" if read else "")


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)
