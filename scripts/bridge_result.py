"""Keeps the result of the tests of a bridge, in its environment.

``python scripts/bridge_result.py [--dry] NAME JUNIT.xml SECONDS TIMES``: SECONDS is the time that the installation took, and
TIMES a file with what the shell's ``times`` printed.
"""

import datetime
import json
import platform
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
CONSTRAINTS = ROOT / "constraints"


def commit() -> str:
    """The commit that was run; a plus says that files which matter had been changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = git(
        "status",
        "--porcelain",
        "--",
        "src",
        "tests",
        "examples",
        "scripts",
        "constraints.txt",
        "constraints/*.txt",
        "constraints/locked",
    )
    return git("rev-parse", "--short=7", "HEAD") + "+" * bool(changed)


def keep(file: Path, line: dict[str, object], *, dry: bool) -> None:
    """Write ``line`` with the Python, the commit and the date, unless it is a dry run."""
    line |= {
        "python": platform.python_version(),
        "commit": commit(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
    if not dry:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(line) + "\n")


def cpu(times: str) -> int:
    """The processor time of all children, in seconds."""
    words = times.splitlines()[1].split()
    return round(sum(60 * int(minutes) + float(rest.rstrip("s")) for minutes, rest in (word.split("m") for word in words)))


def main(name: str, report: Path, seconds: int, times: str, *, dry: bool) -> None:
    """Write ``constraints/results/NAME.json``: one line."""
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")  # noqa: S314 - pytest wrote it
    counted = {key: int(suite.get(key, 0)) for key in ("tests", "errors", "failures", "skipped")}
    if counted["skipped"] or not counted["tests"]:
        raise SystemExit(f"bridge {name}: {counted['skipped']} of {counted['tests']} tests were skipped; every test has to run")
    found = re.search(r"^# package: (\S+)", (CONSTRAINTS / f"{name}.txt").read_text(), re.MULTILINE)
    package = found[1] if found else name
    line: dict[str, object] = {
        "bridge": name,
        "package": package,
        "version": version(package),
        "passed": counted["tests"] - counted["errors"] - counted["failures"],
        "installed": seconds,
        "seconds": round(float(suite.get("time", 0))),
        "cpu": cpu(times),
    }
    keep(CONSTRAINTS / "results" / f"{name}.json", line, dry=dry)
    took = f"in {line['seconds']} s; CPU with the installation {line['cpu']} s"
    print(f"bridge {name}: {line['passed']} tests passed with {package} {line['version']} {took}")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--dry"]
    main(words[0], Path(words[1]), int(words[2]), Path(words[3]).read_text(), dry="--dry" in sys.argv)
