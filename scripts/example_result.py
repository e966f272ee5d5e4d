"""Keeps how long an example took: ``python scripts/example_result.py [--dry] examples/NAME.py SECONDS [ARGUMENT …]``."""

import sys
from pathlib import Path

from bridge_result import CONSTRAINTS, keep


def main(words: list[str]) -> None:
    """Write ``constraints/results/examples/NAME.json``: one line."""
    dry = words[0] == "--dry"
    path, seconds, *arguments = words[dry:]
    name = Path(path).stem
    line: dict[str, object] = {"example": name, "arguments": " ".join(arguments), "seconds": int(seconds)}
    keep(CONSTRAINTS / "results" / "examples" / f"{name}.json", line, dry=dry)
    print(f"example {name} took {seconds} s")


if __name__ == "__main__":
    main(sys.argv[1:])
