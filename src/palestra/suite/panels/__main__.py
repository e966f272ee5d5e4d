"""Write or check the files of panels: ``python -m palestra.suite.panels [--check] [NAME…]``."""

import argparse
import sys

from palestra.suite.panels.store import FILES, differences, list_panels, panel_from_rules, panel_json


def main() -> None:
    """Write the file of each named panel, of all if none is named; with ``--check``, compare and write nothing."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="panels; all if none is given")
    parser.add_argument("--check", action="store_true", help="compare with the committed files; exit with 1 on a difference")
    chosen = parser.parse_args()
    found: list[str] = []
    for name in chosen.names or list_panels():
        if chosen.check:
            found += [f"{name}: {line}" for line in differences(name)]
            continue
        panel = panel_from_rules(name)
        FILES.mkdir(exist_ok=True)
        (FILES / f"{name}.json").write_bytes(panel_json(panel))
        print(f"{panel.label}  {len(panel)} tasks")
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
