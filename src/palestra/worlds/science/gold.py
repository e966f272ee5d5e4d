"""Gold paths: the actions with which ScienceWorld itself solves a game.

ScienceWorld computes a path while it loads a game, in seconds, for genetics in a minute. ``data/gold.json.gz`` holds the
paths of the panels. Any other path is computed when ``oracle()`` first asks for it, and kept in the user's Palestra folder.
``python -m palestra.worlds.science`` completes the file.

While it computes a path, ScienceWorld draws more random numbers than while the path is played. So bees fly elsewhere, and a
fruit may grow a few steps later than the path expects. ``follow`` plays a path and waits for such a thing.
"""

import gzip
import json
from contextlib import suppress
from functools import cache
from importlib import metadata
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeVar

from palestra.durable import write_whole
from palestra.errors import UsageError
from palestra.foundation.home import home_folder
from palestra.worlds.science.shared import SharedState
from palestra.worlds.science.simulator import NOT_UNDERSTOOD, Simulator
from palestra.worlds.science.tasks import Game

__all__ = ["Followed", "Gold", "compute_path", "follow", "known_path", "read_gold", "shipped_paths", "shortened", "write_gold"]

T = TypeVar("T")

_WAIT = 10
"""Steps that the action ``wait`` lets pass."""

_PATIENCE = 30
"""Steps that ``follow`` waits for a thing that the path focuses on."""

_FILE = Path(__file__).parent / "data" / "gold.json.gz"


class Gold(NamedTuple):
    """The content of ``data/gold.json.gz``, about games without simplifications."""

    paths: dict[Game, list[str]]
    """Paths that solve their game."""
    short: dict[Game, int]
    """Games that their gold path does not solve, with the score that it reaches."""


def known_path(game: Game, simplifications: str) -> list[str] | None:
    """Return the path of a game if it was computed before."""
    shipped = None if simplifications else shipped_paths().get(game)
    return shipped or _kept(_place(game, simplifications))


class Followed(NamedTuple):
    """A path as it was played."""

    path: list[str]
    """The actions up to the end of the game, with the waits that were needed."""
    score: int


def compute_path(shared: SharedState, game: Game, simplifications: str) -> list[str]:
    """Compute the path of a game in a simulator of its own, and keep it, without long runs of looks."""
    simulator = Simulator(shared)
    try:
        path = shortened(simulator.gold_path(game, simplifications))
        path = follow(simulator, game, simplifications, path).path
    finally:
        simulator.free()
    file = _place(game, simplifications)
    # Another process may be writing the same path, or the folder may be read-only. The path is computed again then.
    with suppress(OSError, UsageError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, json.dumps(path).encode())
    return path


def follow(simulator: Simulator, game: Game, simplifications: str, path: list[str]) -> Followed:
    """Play a path from the start of its game, and wait where it focuses on something that is not there yet."""
    simulator.begin(game, simplifications)
    played: list[str] = []
    score = 0
    for action in path:
        answer = simulator.take(action)
        waits = 0
        while answer.text == NOT_UNDERSTOOD and action.startswith("focus on ") and waits < _PATIENCE:
            simulator.take("wait1")
            answer, waits = simulator.take(action), waits + 1
        played += [*["wait1"] * waits, action]
        score = answer.score
        if answer.completed or score < 0:
            break
    return Followed(played, score)


def shortened(path: list[str]) -> list[str]:
    """Return the path with ``wait`` for each ten looks at the same thing.

    Where something takes long, ScienceWorld's own path looks at it hundreds of times. ``wait`` lets the time of ten looks pass.
    """
    short: list[str] = []
    for action, run in groupby(path):
        length = len(list(run))
        waits = (length - 1) // _WAIT if action.startswith("look at ") else 0
        short += [action] * (length - waits * _WAIT) + ["wait"] * waits
    return short


@cache
def shipped_paths() -> dict[Game, list[str]]:
    """Return the paths that come with Palestra, of games without simplifications."""
    return read_gold().paths


def read_gold() -> Gold:
    """Read the file. It has each action once, and each path as a list of positions."""
    content = json.loads(gzip.decompress(_FILE.read_bytes()))
    actions = content["actions"]
    paths = {game: [actions[index] for index in path] for game, path in _flat(content["paths"]).items()}
    return Gold(paths, _flat(content.get("short", {})))


def write_gold(gold: Gold) -> None:
    """Write the file, in the order of the games and without a date, so that the same content is the same file."""
    actions = sorted({action for path in gold.paths.values() for action in path})
    places = {action: index for index, action in enumerate(actions)}
    paths = _nested({game: [places[action] for action in path] for game, path in gold.paths.items()})
    content = {"actions": actions, "paths": paths, "short": _nested(gold.short)}
    packed = gzip.compress(json.dumps(content, separators=(",", ":")).encode(), 9, mtime=0)
    write_whole(_FILE, packed)


def _flat(nested: dict[str, dict[str, T]]) -> dict[Game, T]:
    return {Game(task, int(variation)): value for task, values in nested.items() for variation, value in values.items()}


def _nested(flat: dict[Game, T]) -> dict[str, dict[str, T]]:
    nested: dict[str, dict[str, T]] = {}
    for game in sorted(flat):
        nested.setdefault(game.task, {})[str(game.variation)] = flat[game]
    return nested


def _place(game: Game, simplifications: str) -> Path:
    name = "-".join([game.task, str(game.variation), *sorted(filter(None, simplifications.split(",")))])
    return home_folder("science") / metadata.version("scienceworld") / f"{name}.json"


def _kept(file: Path) -> list[str] | None:
    try:
        path = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return path if isinstance(path, list) else None
