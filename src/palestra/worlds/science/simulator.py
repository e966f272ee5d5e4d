"""The calls to ScienceWorld's Java object. Each blocks, so they run in the thread of a ``Jvm``."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from palestra.worlds.science.link import flag, number, text
from palestra.worlds.science.shared import SharedState, State
from palestra.worlds.science.tasks import Game

__all__ = ["NOT_UNDERSTOOD", "Reaction", "Simulator"]

NOT_UNDERSTOOD = "No known action matches that input."
"""The simulator's answer to an action that it cannot read, or that names a thing out of reach."""


class Reaction(NamedTuple):
    """What the simulator says after an action."""

    text: str
    score: int
    """Progress from 0 to 100, negative after a fatal mistake."""
    completed: bool


class Simulator:
    """One house of ScienceWorld, in a Java process that may have others."""

    def __init__(self, shared: SharedState) -> None:
        self._shared = shared
        self._link = shared.link
        self._state = State()
        shared.turn_of(self._state)  # to make the Java object draws random numbers, too
        self._java = self._link.new("scienceworld.runtime.pythonapi.PythonInterface")
        self._patterns: list[str] = []
        """The actions of the loaded game, such as ``pour OBJ in OBJ``, once they are needed."""

    def _call(self, method: str, *args: str) -> Any:
        self._shared.turn_of(self._state)
        return self._link.call(self._java, method, *args)

    def _load(self, game: Game, simplifications: str, gold: bool) -> None:
        self._patterns = []
        self._call("load", text(game.task), number(game.variation), text(simplifications), flag(gold))
        self._shared.note_simplifications(self._state)

    def begin(self, game: Game, simplifications: str) -> tuple[str, str]:
        """Load a game; return its description and the first look around."""
        # ScienceWorld's wrapper also calls reset(), which builds the same house a second time.
        self._load(game, simplifications, gold=False)
        return self._call("getTaskDescription"), self._call("step", text("look around"))

    def take(self, action: str) -> Reaction:
        """Take an action."""
        # ScienceWorld's wrapper also lists all valid actions, which takes longer than the step.
        seen = self._call("step", text(action))
        return Reaction(seen, round(100 * self._call("getScore")), self._call("getCompleted"))

    def random_action(self, chances: Iterable[float]) -> str:
        """Return a verb with things in reach, each drawn by the next of ``chances``, which are at least 0 and below 1.

        The world stays as it is.
        """
        # ScienceWorld can also list all valid actions. That takes three times as long as a step, and almost all of them are
        # pairs of things that cannot be connected.
        if not self._patterns:
            self._patterns = sorted(str(pattern) for pattern in self._link.items(self._call("getPossibleActions")))
        things = sorted(set(json.loads(self._names_in_reach()).values()))
        draws = iter(chances)
        words = _drawn(self._patterns, draws).split(" ")
        return " ".join(_drawn(things, draws) if word == "OBJ" else word for word in words)

    def _names_in_reach(self) -> str:
        self._shared.turn_of(self._state)
        with self._shared.same_chances():  # ScienceWorld draws random numbers to tell things with the same name apart
            return str(self._call("getPossibleObjectReferentLUTJSON"))

    def gold_path(self, game: Game, simplifications: str) -> list[str]:
        """Load a game and return the actions that solve it. Takes seconds, for genetics a minute."""
        self._load(game, simplifications, gold=True)
        return [str(action) for action in self._link.items(self._call("getGoldActionSequence"))]

    def splits(self, task: str) -> dict[str, list[int]]:
        """Return the variations of each split of a task."""
        self._load(Game(task, 0), "", gold=False)
        methods = {"train": "getVariationsTrain", "dev": "getVariationsDev", "test": "getVariationsTest"}
        return {name: [int(str(item)) for item in self._link.items(self._call(method))] for name, method in methods.items()}

    def free(self) -> None:
        """Let the Java process forget the house."""
        self._link.forget(self._java)
        self._shared.forget(self._state)


def _drawn(items: Sequence[str], draws: Iterator[float]) -> str:
    return items[int(next(draws) * len(items))]
