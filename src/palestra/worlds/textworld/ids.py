"""The ids of TextWorld's four challenges, each with three levels."""

from palestra.registry import Need, register

_NEEDS = (Need(label="TextWorld", module="textworld", extra="textworld"),)
_ABOUT = {
    "coin": "Find a coin in a house of many rooms and take it.",
    "treasure": "Find the one object that the goal names, behind doors and in containers; another object is a trap.",
    "cooking": "Read a recipe, gather the ingredients, cut and cook them as it says, and eat the meal.",
    "simple": "Find something to eat in a house of six rooms and put it on the stove.",
}
_COOKING = {"recipe_seed": None, "split": "train", "drop": False}
_LEVELS = {
    "coin": {
        "easy": {"settings": {"level": 5}, "max_turns": 20},
        "medium": {"settings": {"level": 110}, "max_turns": 50},
        "hard": {"settings": {"level": 215}, "max_turns": 120},
    },
    "treasure": {
        "easy": {"settings": {"level": 5}, "max_turns": 30},
        "medium": {"settings": {"level": 15}, "max_turns": 60},
        "hard": {"settings": {"level": 23}, "max_turns": 120},
    },
    "cooking": {
        "easy": {
            "settings": {**_COOKING, "recipe": 1, "take": 1, "cook": False, "cut": False, "open": False, "go": 1},
            "max_turns": 20,
            "floor": 0.12,  # one ingredient, taken from the counter: 6 of 17 games, one of three points each
        },
        "medium": {
            "settings": {**_COOKING, "recipe": 1, "take": 1, "cook": True, "cut": True, "open": True, "go": 6},
            "max_turns": 60,
        },
        "hard": {
            "settings": {**_COOKING, "recipe": 3, "take": 3, "cook": True, "cut": True, "open": True, "go": 9},
            "max_turns": 100,
            "floor": 0.01,  # one of eleven points in one of 17 games
        },
    },
    "simple": {
        "easy": {"settings": {"rewards": "dense", "goal": "detailed", "test": False}, "max_turns": 50, "floor": 0.07},
        "medium": {"settings": {"rewards": "balanced", "goal": "brief", "test": False}, "max_turns": 75},
        "hard": {"settings": {"rewards": "sparse", "goal": "none", "test": False}, "max_turns": 100},
    },
}


for name, about in _ABOUT.items():
    register(
        f"text:{name}",
        "palestra.worlds.textworld.env:TextAdventure",
        levels=_LEVELS[name],
        default_level="hard",
        kwargs={"challenge": name},
        tags={"world", "text", "multi-turn", "planning"},
        needs=_NEEDS,
        description=about,
    )
