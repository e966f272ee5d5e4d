"""The ids of the household tasks."""

from palestra.registry import Need, register
from palestra.worlds.house.goals import TASKS

_ABOUT = {
    "pick": "Find a thing and put it somewhere else.",
    "look": "Look at a thing in the light of a lamp.",
    "clean": "Clean a thing in the sink and put it somewhere.",
    "heat": "Heat a thing in the microwave and put it somewhere.",
    "cool": "Cool a thing in the fridge and put it somewhere.",
    "two": "Put two things of a kind into the same place.",
    "any": "One of the six household tasks.",
}
_LEVELS = {"easy": {"size": "easy", "max_turns": 30}, "hard": {"size": "hard", "max_turns": 50}}


_GAMES = Need(
    label="ALFWorld's games",
    variable="ALFWORLD_DATA",
    argument="path",
    fix="run alfworld-download and set ALFWORLD_DATA=FOLDER",
)


for name, about in _ABOUT.items():
    register(
        f"house:{name}",
        "palestra.worlds.house.env:Household",
        levels=_LEVELS,
        default_level="hard",
        kwargs={"tasks": TASKS if name == "any" else name},
        tags={"house", "world", "planning", "search"},
        description=about,
    )
register(
    "house:alfworld",
    "palestra.worlds.house.alfworld:AlfWorld",
    levels={split: {"split": split} for split in ("train", "seen", "unseen")},
    kwargs={"max_turns": 50},
    tags={"house", "world", "planning", "search", "data"},
    needs=[_GAMES],
    rows="palestra.worlds.house.alfworld:read_games",
    description="The games of ALFWorld, if they are on this machine.",
)
