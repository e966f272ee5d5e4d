"""Writes the page of bridges from ``constraints/``, ``examples/`` and the results of the last runs.

python docs/generate_bridges.py
"""

import json
import re
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parent.parent / "examples"
PAGE = Path(__file__).parent / "reference" / "bridges.md"
CONSTRAINTS = Path(__file__).parent.parent / "constraints"
HEAD = """# Bridges: what was run, and when

A bridge connects Palestra with another framework; [other trainers](../how-to/other-trainers.md) and
[environments of other packages](../how-to/their-environments.md) show how to use each. This page lists the parts of each
framework that the contract tests run, its version, and when the tests last passed. The framework is the released package, in a
virtual environment of its own. Models are tiny or scripted, and nothing needs a GPU. An adapter is one short file.

`bash scripts/bridge.sh NAME` installs the framework and runs the tests of one bridge; NAME is a file of `constraints/` without
`.txt`. The script keeps the result in `constraints/results`, and writes this page. The bridges of the group *light* need no
torch, and run on every push. The others, *heavy*, run every night.

Under "equal", *tokens* means: token ids, masks and log-probs in the framework equal those of `Trajectory.segments`, token by
token, over 200 random episodes of several turns with cuts and, where the framework can record them, failures. *Text* means:
observations, actions, rewards and ends are equal. "Abandoned" says how many episodes a test lets the framework begin and never
end; afterwards no environment, file, box, process or thread is left. "Seconds" are the time of the installation from a warm
package cache and that of the tests; "?" means that it was not recorded. The machine had two cores and did other work at
the same time, so the CPU time, which newer results add in parentheses, says more.
"Commit" is the commit of Palestra that was run; results without one are older than the column.

| framework | version | what was run | equal | abandoned | group | tests | seconds | Python | date | commit |
|---|---|---|---|---|---|---|---|---|---|---|
"""
PLAYED = """
## Examples

The table says which files of [`examples/`](../../examples) were run with the wheel of Palestra, in a virtual environment
without the checkout, and how long they took.
`bash scripts/examples.sh` runs the examples that need no other framework. If they need no torch, it types
`uv run --find-links dist FILE`, which reads the requirements from the first lines of the file; these seconds include the
installation. `bash scripts/bridge.sh NAME` runs the others in the environment of their bridge. With `--smoke`, an example plays
episodes with a fixed strategy in place of the model.

| example | arguments | seconds | Python | date | commit |
|---|---|---|---|---|---|
"""
READ = """
## Written from the source

These frameworks are not on PyPI, so no script installs them and runs tests. Their trainers were not run.

| framework | why |
|---|---|
"""


def header(file: Path) -> dict[str, str]:
    return dict(re.findall(r"^# ([a-z-]+): (.*)$", file.read_text(), re.MULTILINE))


def kept(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |\n"


def where(last: dict[str, Any]) -> list[object]:
    return [last.get(key, "") for key in ("python", "date", "commit")]


def bridge(file: Path) -> str:
    says, last = header(file), kept(CONSTRAINTS / "results" / f"{file.stem}.json")
    what = [says.get(key, "") for key in ("runs", "equal", "leaks", "group")]
    if not last:
        return row(says["framework"], "", *what, "not run yet", "", *where(last))
    took = f"{last.get('installed', '?')} + {last['seconds']}" + (f" (CPU {last['cpu']})" if "cpu" in last else "")
    return row(says["framework"], f"{last['package']} {last['version']}", *what, f"{last['passed']} passed", took, *where(last))


def example(file: Path) -> str:
    last = kept(CONSTRAINTS / "results" / "examples" / f"{file.stem}.json")
    link = f"[{file.stem}](../../examples/{file.name})"
    arguments = f"`{last['arguments']}`" if last.get("arguments") else ""
    return row(link, arguments, last.get("seconds", "not run with the wheel yet"), *where(last))


def page() -> str:
    files = sorted(CONSTRAINTS.glob("*.txt"))
    read = [file for file in files if "read" in header(file)]
    text = HEAD + "".join(bridge(file) for file in files if file not in read)
    text += READ + "".join(row(header(file)["framework"], header(file)["read"]) for file in read)
    return text + PLAYED + "".join(map(example, sorted(EXAMPLES.glob("*.py"))))


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}", file=sys.stderr)
