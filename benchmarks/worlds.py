r"""The promises of the worlds at their full size: oracles, determinism, hostile actions, cost per step.

    python benchmarks/worlds.py                  # every world
    python benchmarks/worlds.py craft desk       # two of them
    python benchmarks/worlds.py --quick          # small samples, two worlds at a time: less than 50 s on two cores

The rows of a world are in ``benchmarks/worlds_WORLD.py``, which has ``rows(quick: bool) -> list[Row]``. A world whose
packages are not installed has one row, which misses its limit.
"""

import argparse
import importlib
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from rows import Row, finish

from palestra.errors import MissingData, MissingExtra

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))  # worlds share helpers with the tests: tests.suite
WORLDS = sorted(file.stem.removeprefix("worlds_") for file in HERE.glob("worlds_*.py"))


def rows_of(world: str, quick: bool) -> list[Row]:
    """The rows of one world, each labeled with its name. If something that it needs is missing, one row misses its limit."""
    module = importlib.import_module(f"worlds_{world}")
    try:
        return [row._replace(what=f"{world}: {row.what}") for row in module.rows(quick)]
    except (MissingExtra, MissingData) as error:
        return [Row(f"{world}: measured ({error})", 0, ">= 1")]


def measured(worlds: Sequence[str], quick: bool) -> list[Row]:
    """The rows of several worlds: one at a time at full size, whose costs are figures to publish; two at a time if quick."""
    if not quick:
        return [row for world in worlds for row in rows_of(world, quick)]
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        return [row for rows in pool.map(rows_of, worlds, repeat(quick)) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help=f"worlds to measure, of {', '.join(WORLDS)}; all by default")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="small samples, two worlds at a time: less than 50 s on two cores, without the rows whose processes start slowly",
    )
    chosen = parser.parse_args()
    if unknown := sorted(set(chosen.worlds) - set(WORLDS)):
        parser.error(f"no rows for {', '.join(unknown)}: there are {', '.join(WORLDS)}")
    finish(measured(chosen.worlds or WORLDS, chosen.quick))


if __name__ == "__main__":
    main()
