"""Real ALFWorld games, for users who have them: ``alfworld-download`` fills a folder, and ``ALFWORLD_DATA`` names it.

A game is a folder with ``game.tw-pddl`` and ``traj_data.json``. The games are those that ALFWorld itself plays: of the six task
types, marked as solvable, without slicing and without movable receptacles. They are ordered by their path. Names, rules and
conditions are those of the game, and so are the words of the task; all other text is ours.

A thing that lies in two places at once in the file is in the first of them. A thing that lies in no place does not exist, since
no command of ALFWorld reaches it.
"""

import hashlib
import os
import re
from collections import Counter, defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from palestra.authoring.indices import draw_index
from palestra.errors import MissingData, SchemaError, UsageError
from palestra.foundation.encoding import decode_json
from palestra.worlds.house.env import InRoom
from palestra.worlds.house.goals import Goal
from palestra.worlds.house.wording import wish_of
from palestra.worlds.house.world import MIDDLE, House, Place, Scene, Thing

__all__ = ["VARIABLE", "AlfWorld", "Games", "read_games"]

Content = TypeVar("Content")

VARIABLE = "ALFWORLD_DATA"
"""The environment variable that names the folder of the data; ALFWorld's own programs use it, too."""

_TYPES = {
    "pick_and_place_simple": "pick",
    "look_at_obj_in_light": "look",
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
    "pick_two_obj_and_place": "two",
}
_SPLITS = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen"}
_TRAITS = {"pickupable": "take", "toggleable": "switch", "cleanable": "clean", "heatable": "heat", "coolable": "cool"}
_MARKS = {"isclean": "clean", "ishot": "hot", "iscool": "cool", "ison": "lit", "istoggled": "used"}
_TREATS = {"sinkbasin": "clean", "microwave": "heat", "fridge": "cool"}
_HOLLOW = frozenset(["sinkbasin", "bathtubbasin", "garbagecan", "laundryhamper", "toaster"])
_ROOMS = ((30, "kitchen"), (230, "living room"), (330, "bedroom"), (430, "bathroom"))
"""The highest number of a scene in each room."""

_WORD = re.compile(r"[()]|[^\s()]+")
_WISH = re.compile(r"Your task is to: ([^\"\n]+?)\.?\"")


class _Parameters(msgspec.Struct, frozen=True):
    object_target: str
    parent_target: str = ""
    toggle_target: str = ""
    object_sliced: bool = False


class _Scene(msgspec.Struct, frozen=True):
    scene_num: int = 0


class _Trajectory(msgspec.Struct, frozen=True):
    """What we read of ``traj_data.json``."""

    task_type: str
    pddl_params: _Parameters
    scene: _Scene = _Scene()


class _GameFile(msgspec.Struct, frozen=True):
    """What we read of ``game.tw-pddl``."""

    pddl_problem: str
    grammar: str = ""
    solvable: bool = False


class Games(NamedTuple):
    """The games of a split."""

    folder: Path
    names: tuple[str, ...]
    """The path of each game below ``folder``, sorted."""
    sha256: str

    def __len__(self) -> int:  # a tuple's own length would be its number of fields
        return len(self.names)


class _Loaded(NamedTuple):
    """The start of a game."""

    house: House
    goal: Goal
    wish: str


def read_games(path: str = "", split: str = "train", **_: Any) -> Games:
    """Return the games of a split.

    Args:
        path: The folder that ``alfworld-download`` filled; ``ALFWORLD_DATA`` names it by default.
        split: ``train``, ``seen`` or ``unseen``.

    Raises:
        MissingData: The folder has no game of this split.
        SchemaError: A file of a game cannot be read.
    """
    if split not in _SPLITS:
        raise UsageError(f'ALFWorld has no split "{split}": write {", ".join(_SPLITS)}')
    given = path or os.environ.get(VARIABLE, "")
    if not given:
        raise MissingData(f"ALFWorld's games are not on this machine: run alfworld-download and set {VARIABLE}=FOLDER")
    root = Path(given).expanduser()
    folders = (root / "json_2.1.1" / _SPLITS[split], root / _SPLITS[split])
    return _found(next((folder for folder in folders if folder.is_dir()), root))


@lru_cache(maxsize=8)
def _found(folder: Path) -> Games:
    names = []
    hasher = hashlib.sha256()
    for file in sorted(folder.rglob("game.tw-pddl"), key=lambda file: file.relative_to(folder).as_posix()):
        name = file.parent.relative_to(folder).as_posix()
        if "movable" in name or "Sliced" in name or not _is_playable(file.parent):
            continue
        names.append(name)
        hasher.update(encoded_name(name) + file.read_bytes() + (file.parent / "traj_data.json").read_bytes())
    if not names:
        raise MissingData(
            f"{folder} has no ALFWorld game: expected folders with game.tw-pddl and traj_data.json. Run alfworld-download and "
            f"set {VARIABLE}=FOLDER"
        )
    return Games(folder, tuple(names), hasher.hexdigest())


def encoded_name(name: str) -> bytes:
    """Return the name of a game for the hash; a folder name need not be valid UTF-8."""
    return name.encode("utf-8", "surrogateescape") + b"\0"


def _is_playable(folder: Path) -> bool:
    if not (folder / "traj_data.json").is_file():
        return False
    trajectory = _read(folder / "traj_data.json", _Trajectory)
    if trajectory.task_type not in _TYPES or trajectory.pddl_params.object_sliced:
        return False
    return _read(folder / "game.tw-pddl", _GameFile).solvable


def _read(file: Path, kind: type[Content]) -> Content:
    try:
        return decode_json(file.read_bytes(), kind)
    except (OSError, SchemaError) as error:
        raise SchemaError(f"{file} is not a file of ALFWorld: {error}") from None


@lru_cache(maxsize=64)
def _load(folder: Path) -> _Loaded:
    trajectory = _read(folder / "traj_data.json", _Trajectory)
    game = _read(folder / "game.tw-pddl", _GameFile)
    wanted = trajectory.pddl_params
    task = _TYPES[trajectory.task_type]
    goal = Goal(task, wanted.object_target.lower(), (wanted.toggle_target if task == "look" else wanted.parent_target).lower())
    number = trajectory.scene.scene_num
    room = next((name for highest, name in _ROOMS if 0 < number <= highest), "room")
    try:
        house = _house(_facts(game.pddl_problem), room)
    except (KeyError, IndexError, ValueError) as error:
        raise SchemaError(f"{folder / 'game.tw-pddl'}: the planning problem cannot be read ({error!r})") from None
    _check(house, goal, folder)
    words = _WISH.search(game.grammar)
    hollow = any(place.hollow for place in house.scene.places if place.kind == goal.target)
    wish = words[1] if words and words[1] != "UNKNOWN GOAL" else ""
    return _Loaded(house, goal, f"{wish[:1].upper()}{wish[1:]}." if wish else wish_of(goal, hollow))


def _check(house: House, goal: Goal, folder: Path) -> None:
    """Raise ``SchemaError`` if the room lacks what the goal names."""
    things = {thing.kind for thing in house.scene.things}
    targets = things if goal.task == "look" else {place.kind for place in house.scene.places}
    tools = {place.treats for place in house.scene.places}
    if goal.kind not in things or goal.target not in targets or (goal.task in _TREATS.values() and goal.task not in tools):
        raise SchemaError(f"{folder}: the room does not have what the task {goal.task} needs ({goal.kind}, {goal.target})")


def _facts(problem: str) -> dict[str, list[list[str]]]:
    """Return the facts at the start: predicate → the arguments of each fact, all in lower case."""
    facts: dict[str, list[list[str]]] = defaultdict(list)
    lowered = problem.lower()
    start = lowered.index("(:init") + len("(:init")
    depth, fact = 1, list[str]()
    for word in _WORD.finditer(lowered, start):
        if word[0] == "(":
            depth += 1
            fact = []
        elif word[0] == ")":
            if depth == 2 and fact:
                facts[fact[0]].append(fact[1:])
            depth -= 1
            fact = []
            if not depth:
                return facts
        else:
            fact.append(word[0])
    raise ValueError("(:init is not closed")


def _house(facts: dict[str, list[list[str]]], room: str) -> House:
    names = _names({word for group in facts.values() for fact in group for word in fact if "_bar_" in word})
    spots = {spot: number for number, spot in enumerate(sorted({spot for _, spot in facts["receptacleatlocation"]}))}
    at = {place: spots[spot] for place, spot in facts["receptacleatlocation"]}
    openable = {place for (place,) in facts["openable"]}
    kinds = {place: kind.removesuffix("type") for place, kind in facts["receptacletype"]}
    ids = sorted(at, key=lambda place: _by_number(names[place]))
    places = [_place(names[id], kinds[id], at[id], id in openable) for id in ids]
    index = {id: number for number, id in enumerate(ids)}
    lies: dict[str, int] = {}
    for thing, place in facts["inreceptacle"]:
        if place in index:
            lies.setdefault(thing, index[place])
    traits = defaultdict(set)
    for predicate, trait in _TRAITS.items():
        for (thing,) in facts[predicate]:
            traits[thing].add(trait)
    sorts = {thing: kind.removesuffix("type") for thing, kind in facts["objecttype"]}
    held = sorted(lies, key=lambda thing: _by_number(names[thing]))
    things = [Thing(names[thing], sorts[thing], frozenset(traits[thing])) for thing in held]
    fits: dict[str, set[str]] = defaultdict(set)
    for place, thing in facts["cancontain"]:
        fits[place.removesuffix("type")].add(thing.removesuffix("type"))
    scene = Scene(room, places, things, {kind: frozenset(kept) for kind, kept in fits.items()})
    house = House(scene, [lies[thing] for thing in held], {index[place] for (place,) in facts["opened"] if place in index})
    for predicate, mark in _MARKS.items():
        getattr(house, mark).update(held.index(thing) for (thing,) in facts[predicate] if thing in lies)
    ((_, start),) = facts["atlocation"]
    house.spot = spots.get(start, MIDDLE)
    return house


def _place(name: str, kind: str, spot: int, openable: bool) -> Place:
    return Place(name, kind, spot, openable, openable or kind in _HOLLOW, _TREATS.get(kind, ""))


def _names(ids: set[str]) -> dict[str, str]:
    """Return the name of each id as ALFWorld numbers them: among equals, the last id in the alphabet is number 1."""
    names = {}
    numbers: Counter[str] = Counter()
    for id in sorted(ids, reverse=True):
        kind = id.partition("_bar_")[0] + ("basin" if "basin" in id else "")
        numbers[kind] += 1
        names[id] = f"{kind} {numbers[kind]}"
    return names


def _by_number(name: str) -> tuple[str, int]:
    kind, _, number = name.rpartition(" ")
    return kind, int(number)


class AlfWorld(InRoom):
    """A game of ALFWorld.

    Args:
        path: The folder that ``alfworld-download`` filled; ``ALFWORLD_DATA`` names it by default.
        split: ``train``, ``seen`` or ``unseen``.
        max_turns: The turn limit.
    """

    variables = (VARIABLE,)

    def __init__(self, path: str = "", split: str = "train", max_turns: int = 50) -> None:
        self._games = read_games(path, split)
        self._split = split
        self.max_turns = max_turns

    def begin(self) -> dict[str, Any]:
        index = draw_index(self.task, len(self._games), self.rng, f"ALFWorld/{self._split} has games")
        name = self._games.names[index]
        start, self.goal, self.wish = _load(self._games.folder / name)
        self.house = start.copy()
        source = {"set": "ALFWorld", "split": self._split, "index": index, "sha256": self._games.sha256}
        return {"data": source, "game": name}
