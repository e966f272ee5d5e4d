"""What all simulators of a Java process share, and how each of them still has it for itself.

ScienceWorld keeps three things once per Java process: the random generator, by which bees fly and plants inherit; the counter
that numbers objects, whose order decides between equal choices; and the simplifications of the game that was loaded last. If
episodes took turns without more, a bee of one would draw the random numbers of another, and ``easy`` in one would water the
plants of all. So a simulator takes its own state in with ``turn_of`` before it calls Java, and the state of the one before it
is put aside. An episode then sees what it would see alone in its process.

Java has no method that reads the state of its generator. The option ``--add-opens`` makes the field readable.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from palestra.worlds.science.link import NOTHING, JavaLink, JavaRef, flag, long_number, reference, text

__all__ = ["OPEN_RANDOM", "SharedState", "State"]

OPEN_RANDOM = "--add-opens=java.base/java.util=ALL-UNNAMED"
"""The option of Java that lets ``SharedState`` read the state of the generator."""

_SCRAMBLE = 0x5DEECE66D
"""``java.util.Random`` combines a seed with this number by XOR. The result is its state."""

_IDENTIFIERS = "z:util.UniqueIdentifier"
_SIMPLIFICATIONS = "z:main.scala.scienceworld.runtime.SimplifierProcessor"


class State:
    """What one simulator has put aside."""

    def __init__(self) -> None:
        self.random = 0
        """The state of the random generator. Loading a game seeds it."""
        self.identifiers = 0
        """The number of the last object. Loading a game begins again with 0."""
        self.simplifications = ""
        """The names in use, as Java writes and reads them."""


class SharedState:
    """The shared state of the Java process behind ``link``. Only one thread may use it."""

    def __init__(self, link: JavaLink) -> None:
        self.link = link
        holder = link.call(_class(link, "scala.util.Random$"), "getField", text("MODULE$"))
        generator = link.call(str(link.call(str(holder), "get", NOTHING)), "self")
        self._generator = JavaRef(str(generator))
        self._seed = JavaRef(str(link.call(_class(link, "java.util.Random"), "getDeclaredField", text("seed"))))
        link.call(self._seed, "setAccessible", flag(True))
        self._now: State | None = None
        """The simulator whose state Java has."""

    @property
    def _random(self) -> int:
        return self._number(self._seed, "get", reference(self._generator))

    @_random.setter
    def _random(self, state: int) -> None:
        self.link.call(self._generator, "setSeed", long_number(state ^ _SCRAMBLE))

    def turn_of(self, state: State) -> None:
        """Give Java the state of one simulator, and put that of the last one aside."""
        before, self._now = self._now, state
        if before is state:
            return
        if before is not None:
            before.random, before.identifiers = self._random, self._number(_IDENTIFIERS, "count")
        self._random = state.random
        self.link.call(_IDENTIFIERS, "count_$eq", long_number(state.identifiers))
        if before is None or before.simplifications != state.simplifications:
            self._simplify(state.simplifications)

    def _number(self, target: str, method: str, *args: str) -> int:
        return int(self.link.call(target, method, *args) or 0)

    def _simplify(self, names: str) -> None:
        # The answer is a pair of Java that says whether all names are known. They are: Java has written them.
        self.link.forget(JavaRef(str(self.link.call(_SIMPLIFICATIONS, "parseSimplificationStr", text(names)))))

    def note_simplifications(self, state: State) -> None:
        """Note which simplifications Java uses, after it has loaded a game for ``state``."""
        state.simplifications = str(self.link.call(_SIMPLIFICATIONS, "getSimplificationsUsed"))

    @contextmanager
    def same_chances(self) -> Iterator[None]:
        """Set the generator back at the end: a question about the world must not change what happens next."""
        random = self._random
        try:
            yield
        finally:
            self._random = random

    def forget(self, state: State) -> None:
        """Forget a simulator that is not used any more."""
        if self._now is state:
            self._now = None


def _class(link: JavaLink, name: str) -> Any:
    return link.call("z:java.lang.Class", "forName", text(name))
