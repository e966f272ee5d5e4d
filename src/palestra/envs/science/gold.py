"""Gold paths: the actions with which ScienceWorld itself solves a game.

ScienceWorld computes a path while it loads a game, in seconds, for genetics in a minute. ``data/gold.json.gz`` holds most
paths of the panels. Any other path is computed when ``oracle()`` first asks for it, and kept in the user's Palestra folder.
"""

import gzip
import json
from contextlib import suppress
from functools import cache
from importlib import metadata, resources
from pathlib import Path

from palestra.durable.files import write_whole
from palestra.envs.science.link import Link
from palestra.envs.science.simulator import Simulator
from palestra.envs.science.tasks import Game
from palestra.errors import UsageError
from palestra.models.home import home_folder

__all__ = ["compute_path", "known_path", "shipped_paths"]


def known_path(game: Game, simplifications: str) -> list[str] | None:
    """Return the path of a game if it was computed before."""
    shipped = None if simplifications else shipped_paths().get(game)
    return shipped or _kept(_place(game, simplifications))


def compute_path(link: Link, game: Game, simplifications: str) -> list[str]:
    """Compute the path of a game in a simulator of its own, and keep it."""
    simulator = Simulator(link)
    try:
        path = simulator.gold_path(game, simplifications)
    finally:
        simulator.free()
    place = _place(game, simplifications)
    # Another process may be writing the same path, or the folder may be read-only. The path is computed again then.
    with suppress(OSError, UsageError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, json.dumps(path).encode())
    return path


@cache
def shipped_paths() -> dict[Game, list[str]]:
    """Return the paths that come with Palestra, of games without simplifications.

    The file has each action once, and each path as a list of positions.
    """
    packed = (resources.files("palestra.envs.science") / "data" / "gold.json.gz").read_bytes()
    content = json.loads(gzip.decompress(packed))
    actions = content["actions"]
    return {
        Game(task, int(variation)): [actions[place] for place in path]
        for task, paths in content["paths"].items()
        for variation, path in paths.items()
    }


def _place(game: Game, simplifications: str) -> Path:
    name = "-".join([game.task, str(game.variation), *sorted(filter(None, simplifications.split(",")))])
    return home_folder("science") / metadata.version("scienceworld") / f"{name}.json"


def _kept(place: Path) -> list[str] | None:
    try:
        path = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return None
    return path if isinstance(path, list) else None
