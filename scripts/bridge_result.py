"""Keeps the result of the tests of a bridge: ``python scripts/bridge_result.py NAME JUNIT.xml``, in its environment."""

import datetime
import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

CONSTRAINTS = Path(__file__).parent.parent / "constraints"


def main(name: str, report: Path) -> None:
    """Write ``constraints/results/NAME.json``: one line."""
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    counted = {key: int(suite.get(key, 0)) for key in ("tests", "errors", "failures", "skipped")}
    if counted["skipped"] or not counted["tests"]:
        raise SystemExit(f"bridge {name}: {counted['skipped']} of {counted['tests']} tests were skipped; every test has to run")
    found = re.search(r"^# package: (\S+)", (CONSTRAINTS / f"{name}.txt").read_text(), re.MULTILINE)
    package = found[1] if found else name
    line = {
        "bridge": name,
        "package": package,
        "version": version(package),
        "python": platform.python_version(),
        "passed": counted["tests"] - counted["errors"] - counted["failures"],
        "seconds": round(float(suite.get("time", 0))),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    folder = CONSTRAINTS / "results"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(line) + "\n")
    print(f"bridge {name}: {line['passed']} tests passed with {package} {line['version']}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
