"""Games of TextWorld, made from a seed and kept in the user's Palestra folder.

To make a game takes seconds: TextWorld draws it, and the compilers of Inform 7, which come with TextWorld, turn it into a story
file. A game is kept under the hash of everything that decides it: the version of TextWorld, the challenge, its settings and the
seed. The folder of a game appears at once, complete, and has the hash of its content in it. A folder whose content has another
hash is made again.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import random
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from palestra.errors import UsageError
from palestra.foundation.home import home_folder

__all__ = ["CHALLENGES", "GameFile", "game_file", "quietly"]

CHALLENGES = {
    "coin": "tw-coin_collector",
    "treasure": "tw-treasure_hunter",
    "cooking": "tw-cooking",
    "simple": "tw-simple",
}
"""Our names of TextWorld's challenges."""

_FORMAT = 2
"""Raise it if games are made in another way: games in the folder that were made before are not read then."""
_SEEDS = 2**31 - 1
_TRIES = 8
_SERIAL = slice(0x12, 0x18)
"""Where a story file holds the day on which it was compiled."""


class GameFile(NamedTuple):
    """A game in the cache."""

    story: Path
    """The story file; TextWorld reads the description of the game beside it."""
    sha256: str
    """The hash of the story and of its description, the same on every machine and day."""


def game_file(challenge: str, settings: Mapping[str, Any], directions: bool, seed: int) -> GameFile:
    """Return the game of these settings and this seed. The first call makes it.

    Raises:
        UsageError: TextWorld refuses the settings, or the folder cannot be written.
    """
    decided = [_FORMAT, metadata.version("textworld"), challenge, dict(sorted(settings.items())), directions, seed]
    key = hashlib.sha256(json.dumps(decided).encode()).hexdigest()
    home = home_folder("textworld")
    folder = home / key[:2] / key
    if (found := _read(folder)) is not None:
        return found
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _one_at_a_time(home / f"{key[:2]}.lock"):
            return _read(folder) or _made(folder, challenge, settings, directions, seed)
    except OSError as error:
        raise UsageError(f"cannot keep a game in {home}: {error}. Name another folder with PALESTRA_HOME") from None


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Let one process make a game while others, which probably want the same one, wait for it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _read(folder: Path) -> GameFile | None:
    try:
        wanted = (folder / "sha256").read_text()
        return GameFile(folder / "game.z8", wanted) if _hash(folder) == wanted else None
    except OSError:
        return None


def _hash(folder: Path) -> str:
    return hashlib.sha256((folder / "game.json").read_bytes() + (folder / "game.z8").read_bytes()).hexdigest()


def _made(folder: Path, challenge: str, settings: Mapping[str, Any], directions: bool, seed: int) -> GameFile:
    """Make the game in a draft that is renamed at the end."""
    draft = Path(tempfile.mkdtemp(prefix=".draft-", dir=folder.parent))
    try:
        _compile(draft / "game.z8", challenge, settings, directions, seed)
        (draft / "game.ni").unlink(missing_ok=True)
        (draft / "sha256").write_text(_hash(draft))
        draft.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    found = _read(folder)
    assert found is not None
    return found


def _compile(path: Path, challenge: str, settings: Mapping[str, Any], directions: bool, seed: int) -> None:
    """Make the game. A few seeds give no game, such as one with too long a quest; then the next seed is tried."""
    with quietly(), _own_generators(seed):
        import textworld
        from textworld.challenges import CHALLENGES as DRAWN
        from textworld.generator import compile_game

        draw = DRAWN[CHALLENGES[challenge]][1]
        for number in range(_TRIES):
            options = textworld.GameOptions()
            options.seeds = (seed + number) % _SEEDS
            options.path = str(path)
            options.grammar.only_last_action = not directions
            chosen = dict(settings)
            if chosen.get("recipe_seed", 0) is None:
                chosen["recipe_seed"] = 1 + (seed + number) % _SEEDS
            try:
                compile_game(draw(chosen, options), options)
            except Exception as error:  # noqa: BLE001 - its errors have no common class
                failure = error
            else:
                _make_reproducible(path)
                return
    raise UsageError(f"TextWorld made no game of {challenge} with {dict(settings)}: {failure!r}")


def _make_reproducible(path: Path) -> None:
    """Remove the date from the story, and sort the names that the description excludes, which TextWorld writes from a set."""
    story = bytearray(path.read_bytes())
    story[_SERIAL] = b"000000"
    path.write_bytes(story)
    described = path.with_suffix(".json")
    game = json.loads(described.read_bytes())
    game["grammar"] = {
        name: sorted(value, key=str) if isinstance(value, list) else value for name, value in game["grammar"].items()
    }
    described.write_text(json.dumps(game))


@contextmanager
def quietly() -> Iterator[None]:
    """Hide warnings and prints of TextWorld and Jericho, which say nothing to users of Palestra."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _own_generators(seed: int) -> Iterator[None]:
    """Seed the global generators that TextWorld may draw from, and restore the state of those that others use, too."""
    import textworld

    mine, arrays = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    textworld.g_rng.set_seed(seed % 2**16)
    try:
        yield
    finally:
        random.setstate(mine)
        np.random.set_state(arrays)
