"""Name the tests that failed beside others and passed alone; fail if one of them is not on the list of flaky tests.

    python .ci/flaky.py FAILED_FIRST.json FAILED_AGAIN.json flaky.txt

The two files of names are those that pytest's cache keeps under ``lastfailed``, after the first and after the second run.
"""

import json
import sys
from pathlib import Path


def main(first: Path, again: Path, listed: Path) -> int:
    """Print the flaky tests of a group, and return 1 if one is new."""
    failing = set(json.loads(again.read_text())) if again.exists() else set()
    flaky = sorted(set(json.loads(first.read_text())) - failing)
    lines = [line for line in listed.read_text().splitlines() if line and not line.startswith("#")]
    known_reasons = dict(line.split(" # ", 1) for line in lines)
    for test in flaky:
        print(f"flaky: {test}: {known_reasons.get(test, 'NOT on the list .ci/flaky.txt')}")
    print(f"flaky: {len(flaky)} tests passed only when they were run a second time")
    return int(any(test not in known_reasons for test in flaky))


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:4])))
