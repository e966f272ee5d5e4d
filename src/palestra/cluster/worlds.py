"""The costs of an episode of a heavy world: CPU and memory of all its processes, for ``palestra plan``.

``benchmarks/web.py --only plan --write`` measures these constants and keeps them in ``worlds.json``.
"""

import json
from pathlib import Path
from typing import NamedTuple

from palestra.errors import UsageError

__all__ = ["WORLDS", "WorldCosts", "read_worlds"]

WORLDS = Path(__file__).with_name("worlds.json")


class WorldCosts(NamedTuple):
    """The costs of one world, with where they come from."""

    date: str
    machine: str
    episodes: int
    """The number of episodes that were measured."""
    load: float
    """The load average of the machine then. Far above the number of processes of the benchmark, the costs are too high."""
    reset_cpu: float
    """CPU seconds of a reset to the first observation."""
    turn_cpu: float
    """CPU seconds of a turn."""
    megabytes: float
    """Memory of an episode under way, with its share of a browser."""


def read_worlds(path: Path = WORLDS) -> dict[str, WorldCosts]:
    """Return the worlds whose costs are known, by name."""
    try:
        return {name: WorldCosts(**costs) for name, costs in json.loads(path.read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} does not hold the costs of worlds: {error!r}") from None
