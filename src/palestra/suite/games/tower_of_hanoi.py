"""The Tower of Hanoi: move a stack of disks to another tower, never a larger disk onto a smaller one."""

import re
from functools import lru_cache
from typing import NamedTuple

from palestra.suite.games.game import Game, MoveOutcome, boxed, require

__all__ = ["Shift", "TowerOfHanoi"]

TOWERS = "ABC"

_RANDOM_LEVELS: tuple[tuple[int, int], ...] = ((3, 10), (4, 20), (5, 35))
"""Disks, turns."""

_SHIFT = re.compile(r"([ABC])(?: *(?:,|->|→|TO) *| *)([ABC])", re.IGNORECASE)


class Shift(NamedTuple):
    """Move the top disk of one tower to another."""

    source: str
    target: str


Tower = tuple[int, ...]
"""Its disks from bottom to top."""


@lru_cache(maxsize=1024)
def _drawn(a: Tower, b: Tower, c: Tower) -> str:
    """Return the text of the towers. It is cached, because there are few positions."""
    shown = [f"{name}: {' '.join(map(str, disks)) or '-'}" for name, disks in zip(TOWERS, (a, b, c), strict=True)]
    return "The towers, from bottom to top:\n" + "\n".join(shown)


_SHIFTS = {f"{source} {target}": Shift(source, target) for source in TOWERS for target in TOWERS}
"""The usual notation of a move."""


class TowerOfHanoi(Game[Shift]):
    """Move all disks from ``start`` to ``goal``.

    A solved tower pays 1. When the turns run out, the reward is the share of disks on the goal. If ``num_disks`` or
    ``max_turns`` is ``None``, each task draws both. The oracle is optimal from every position: 2**num_disks - 1 turns from the
    start.
    """

    def __init__(self, num_disks: int | None = 5, max_turns: int | None = 35, start: str = "A", goal: str = "C") -> None:
        towers = set(TOWERS)
        require({start, goal} <= towers and start != goal, f"start and goal must be two of A, B, C, got {start!r} and {goal!r}")
        if num_disks is None or max_turns is None:
            self._levels = _RANDOM_LEVELS
        else:
            require(num_disks >= 1 and max_turns >= 1, "num_disks and max_turns must be at least 1")
            self._levels = ((num_disks, max_turns),)
        self.start, self.goal = start, goal

    @property
    def floor(self) -> float:
        # The constant answer "start goal" moves the smallest disk there and then changes nothing.
        return sum(1 / level[0] for level in self._levels) / len(self._levels)

    def begin(self) -> None:
        self.disks, self.max_turns = self.draw(self._levels)
        self.towers: dict[str, Tower] = {"A": (), "B": (), "C": ()}
        self.towers[self.start] = tuple(range(self.disks, 0, -1))

    def rules(self) -> str:
        return (
            f"You are playing Tower of Hanoi with {self.disks} disks, numbered by size from 1 (smallest) to {self.disks}.\n"
            f"Move all of them from tower {self.start} to tower {self.goal} within {self.max_turns} turns.\n"
            f"Only the top disk of a tower can be moved, and never onto a smaller one.\n"
            f"Think as long as you like, then name the tower to take from and the tower to move to inside \\boxed{{}}, for "
            f"example {boxed('A', 'C')}."
        )

    def view(self) -> str:
        return _drawn(*self.towers.values())

    def read(self, answer: str) -> Shift | None:
        if answer in _SHIFTS:
            return _SHIFTS[answer]
        found = _SHIFT.fullmatch(answer)
        return Shift(found[1].upper(), found[2].upper()) if found else None

    def play(self, move: Shift) -> MoveOutcome:
        start, end = move
        source, target = self.towers[start], self.towers[end]
        if not source or start == end or (target and target[-1] < source[-1]):
            said = f"At turn {self.turn}, you tried to move from tower {start} to tower {end}, but "
            if start == end:
                return MoveOutcome(f"{said}these are the same.")
            if not source:
                return MoveOutcome(f"{said}tower {start} is empty.")
            return MoveOutcome(f"{said}disk {source[-1]} is larger than disk {target[-1]}.")
        self.towers[start], self.towers[end] = source[:-1], (*target, source[-1])
        said = f"At turn {self.turn}, you moved disk {source[-1]} from tower {start} to tower {end}."
        if len(self.towers[self.goal]) == self.disks:
            return MoveOutcome(f"{said} The puzzle is solved. Well done!", 1.0, solved=True)
        return MoveOutcome(said)

    def consolation(self, move: Shift, outcome: MoveOutcome) -> float:
        return len(self.towers[self.goal]) / self.disks

    def oracle(self) -> str:
        # From the largest disk down: a disk on its goal is done. Any other must move, so all smaller ones belong on the third
        # tower first. The last such disk can move now.
        where = {disk: tower for tower, disks in self.towers.items() for disk in disks}
        wanted, move = self.goal, Shift(self.start, self.goal)
        for disk in range(self.disks, 0, -1):
            if where[disk] != wanted:
                move = Shift(where[disk], wanted)
                wanted = next(tower for tower in TOWERS if tower not in move)
        return boxed(*move)

    def sample_random_action(self) -> str:
        source = self.draw_action(TOWERS)
        return boxed(source, self.draw_action([tower for tower in TOWERS if tower != source]))
