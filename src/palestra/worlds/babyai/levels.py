"""The levels of minigrid 3.2.0: which are playable, how many turns they take, and how AgentGym numbers them.

The names are listed here because importing minigrid takes more than a second.
"""

from palestra.errors import UsageError

__all__ = [
    "AGENTGYM",
    "AGENTGYM_NUMBERED",
    "FLOORS",
    "LEFT_OUT",
    "LEVELS",
    "SOMETIMES_UNSOLVABLE",
    "max_turns_of",
    "minigrid_id",
    "require_level",
]

_BY_KIND: dict[str, str] = {
    "go to": (
        "GoToRedBallGrey GoToRedBall GoToRedBallNoDists GoToObj GoToObjS4 GoToObjS6 GoToLocal GoToLocalS5N2 GoToLocalS6N2 "
        "GoToLocalS6N3 GoToLocalS6N4 GoToLocalS7N4 GoToLocalS7N5 GoToLocalS8N2 GoToLocalS8N3 GoToLocalS8N4 GoToLocalS8N5 "
        "GoToLocalS8N6 GoToLocalS8N7 GoTo GoToOpen GoToObjMaze GoToObjMazeOpen GoToObjMazeS4R2 GoToObjMazeS4 GoToObjMazeS5 "
        "GoToObjMazeS6 GoToObjMazeS7 GoToSeq GoToSeqS5R2 GoToRedBlueBall GoToDoor GoToObjDoor"
    ),
    "open": (
        "Open OpenRedDoor OpenDoor OpenDoorDebug OpenDoorColor OpenDoorLoc OpenTwoDoors OpenRedBlueDoors "
        "OpenRedBlueDoorsDebug OpenDoorsOrderN2 OpenDoorsOrderN4"
    ),
    "pick up": "Pickup UnblockPickup PickupLoc PickupDist PickupDistDebug PickupAbove",
    "put next": (
        "PutNextLocal PutNextLocalS5N3 PutNextLocalS6N4 PutNextS4N1 PutNextS5N2 PutNextS5N1 PutNextS6N3 PutNextS7N4 "
        "PutNextS5N2Carrying PutNextS6N3Carrying PutNextS7N4Carrying MoveTwoAcrossS5N2 MoveTwoAcrossS8N9"
    ),
    "unlock": (
        "Unlock UnlockLocal UnlockLocalDist UnlockPickup UnlockPickupDist BlockedUnlockPickup KeyCorridor KeyCorridorS3R1 "
        "KeyCorridorS3R2 KeyCorridorS3R3 KeyCorridorS4R3 KeyCorridorS5R3 KeyCorridorS6R3"
    ),
    "mixed": (
        "ActionObjDoor FindObjS5 FindObjS6 FindObjS7 OneRoomS8 OneRoomS12 OneRoomS16 OneRoomS20 Synth SynthLoc SynthSeq "
        "MiniBossLevel BossLevel BossLevelNoUnlock"
    ),
}

LEVELS: dict[str, str] = {name: kind for kind, names in _BY_KIND.items() for name in names.split()}
"""The 90 levels with an oracle, and their kind."""

LEFT_OUT: dict[str, str] = {
    "GoToImpUnlock": "minigrid's bot does not return on some seeds",
    "UnlockToUnlock": "minigrid's bot does not return on some seeds",
    "SynthS5R2": "minigrid's bot runs out of steps on some seeds",
    "KeyInBox": "minigrid's bot does not look for a key in a box",
    "OpenDoorsOrderN2Debug": "opening the first door already fails the strict check of the second",
    "OpenDoorsOrderN4Debug": "opening the first door already fails the strict check of the second",
}
"""The other six levels of minigrid, and why they are no ids. ``BabyAI(level=…)`` still plays them, partly without an oracle."""

SOMETIMES_UNSOLVABLE = ("PickupDistDebug",)
"""Levels some of whose seeds no agent can solve, so that another seed is drawn then. In this one, it fails the mission to pick
up an object that is in the way, and in about one task of 300 such objects enclose the one that the mission names."""

AGENTGYM_NUMBERED = 40
"""The number of levels in AgentGym's list. It numbers tasks by this, although it uses fewer levels."""

AGENTGYM: dict[int, str] = {
    1: "GoToRedBallGrey",
    2: "GoToRedBall",
    3: "GoToRedBallNoDists",
    4: "GoToObjS6",
    5: "GoToLocalS8N7",
    6: "GoToObjMazeS7",
    7: "GoToImpUnlock",
    8: "GoToSeqS5R2",
    9: "GoToRedBlueBall",
    10: "GoToDoor",
    11: "GoToObjDoor",
    19: "PickupLoc",
    20: "PickupDistDebug",
    21: "PickupAbove",
    30: "ActionObjDoor",
    31: "FindObjS7",
    33: "OneRoomS20",
    36: "SynthLoc",
}
"""The 18 levels of AgentGym's panel, by their number in its list."""

_MORE_TURNS: dict[int, str] = {
    50: (
        "GoTo GoToOpen GoToObjMaze GoToObjMazeOpen GoToObjMazeS6 GoToObjMazeS7 GoToObjDoor Open Pickup PutNextLocal "
        "PutNextS5N2 PutNextS6N3 PutNextS7N4 PutNextS5N2Carrying PutNextS6N3Carrying PutNextS7N4Carrying MoveTwoAcrossS5N2 "
        "Unlock UnlockLocal UnlockLocalDist UnlockPickup UnlockPickupDist BlockedUnlockPickup KeyCorridorS3R1 "
        "KeyCorridorS3R2 KeyCorridorS3R3 FindObjS6 FindObjS7 OneRoomS12 OneRoomS16 OneRoomS20 MiniBossLevel UnlockToUnlock"
    ),
    100: (
        "GoToSeq UnblockPickup MoveTwoAcrossS8N9 KeyCorridor KeyCorridorS4R3 KeyCorridorS5R3 KeyCorridorS6R3 Synth "
        "SynthLoc SynthS5R2"
    ),
    200: "SynthSeq BossLevel BossLevelNoUnlock GoToImpUnlock",
}
_TURNS: dict[str, int] = {level: turns for turns, levels in _MORE_TURNS.items() for level in levels.split()}
"""Turn limits with macro actions, where they are not 20: about twice what the oracle needs at most in 20 tasks."""

FLOORS: dict[str, float] = {
    "ActionObjDoor": 0.02,
    "FindObjS5": 0.01,
    "FindObjS7": 0.01,
    "GoToDoor": 0.11,
    "GoToLocal": 0.06,
    "GoToLocalS5N2": 0.08,
    "GoToLocalS6N2": 0.07,
    "GoToLocalS6N3": 0.06,
    "GoToLocalS6N4": 0.06,
    "GoToLocalS7N4": 0.08,
    "GoToLocalS7N5": 0.08,
    "GoToLocalS8N2": 0.04,
    "GoToLocalS8N3": 0.05,
    "GoToLocalS8N4": 0.04,
    "GoToLocalS8N5": 0.05,
    "GoToLocalS8N6": 0.07,
    "GoToLocalS8N7": 0.07,
    "GoToObj": 0.03,
    "GoToObjDoor": 0.04,
    "GoToObjMaze": 0.01,
    "GoToObjMazeOpen": 0.01,
    "GoToObjMazeS4": 0.01,
    "GoToObjMazeS4R2": 0.01,
    "GoToObjMazeS5": 0.01,
    "GoToObjMazeS6": 0.01,
    "GoToObjMazeS7": 0.01,
    "GoToObjS4": 0.03,
    "GoToObjS6": 0.06,
    "GoToRedBall": 0.43,
    "GoToRedBallGrey": 0.40,
    "GoToRedBallNoDists": 0.46,
    "GoToRedBlueBall": 0.20,
    "GoToSeq": 0.01,
    "GoToSeqS5R2": 0.05,
    "OneRoomS12": 0.07,
    "OneRoomS16": 0.04,
    "OneRoomS20": 0.04,
    "OneRoomS8": 0.09,
    "Open": 0.03,
    "OpenDoor": 0.11,
    "OpenDoorColor": 0.10,
    "OpenDoorDebug": 0.06,
    "OpenDoorLoc": 0.14,
    "OpenDoorsOrderN2": 0.01,
    "OpenDoorsOrderN4": 0.03,
    "OpenRedDoor": 0.50,
    "PickupDist": 0.02,
    "PickupDistDebug": 0.02,
    "PickupLoc": 0.05,
    "Synth": 0.01,
    "SynthLoc": 0.02,
    "UnblockPickup": 0.01,
}
"""The mean score of the best constant answer over 150 tasks, rounded up, as ``benchmarks/babyai_floors.py`` measures it. A
level that is not listed scores 0."""


def max_turns_of(level: str) -> int:
    """Return the turn limit of ``level`` with macro actions."""
    return _TURNS.get(level, 20)


def minigrid_id(level: str) -> str:
    """Return the id under which minigrid registers ``level``."""
    return f"BabyAI-{level}-v{int(level == 'GoToObjS6')}"


def require_level(level: str) -> None:
    """Raise ``UsageError`` unless ``level`` is one of minigrid's 96."""
    if level not in LEVELS and level not in LEFT_OUT:
        raise UsageError(f'minigrid has no BabyAI level "{level}"; the levels are listed by palestra list babyai')
