"""What became of every rollout: an append-only file in which nothing can be lost or counted twice.

::

    issued → leased → finished → consumed(step) → committed(checkpoint)
               │          └────→ dropped(reason)
               └→ failed(class, attempt), for good or to be leased again; or dropped(reason)

At the end ``issued = consumed + failed + dropped``, each rollout exactly once; ``audit`` proves it, and an event that does not
follow from the rollout's state is refused when it is written, not found later.

One event is one line: a checksum, a space, JSON. The checksum covers the line AND the checksum before it, so a line that is
torn, flipped, lost, doubled or moved ends the readable part. Opening takes the longest valid prefix and puts the rest aside.

A checkpoint remembers the ledger's ``position``. To resume is to ``rewind`` to it: what came later belongs to work that the
checkpoint does not have, and is put aside as well. Nothing here holds a clock or a random number, so a run that is resumed
writes the same bytes as one that was never killed.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, Self

import msgspec

from palestra.errors import SchemaError, UsageError
from palestra.training.checkpoint import sync_folder

__all__ = ["BEGINNING", "Audit", "Event", "Ledger", "Position", "State"]

_DIGITS = 16


class State(StrEnum):
    """Where a rollout is. The last four are final, but for ``consumed``, which a checkpoint makes ``committed``."""

    ISSUED = "issued"
    LEASED = "leased"
    FINISHED = "finished"
    CONSUMED = "consumed"
    COMMITTED = "committed"
    FAILED = "failed"
    DROPPED = "dropped"


_FOLLOWS: dict[State, frozenset[State | None]] = {
    State.ISSUED: frozenset({None}),
    State.LEASED: frozenset({State.ISSUED}),
    State.FINISHED: frozenset({State.LEASED}),
    State.CONSUMED: frozenset({State.FINISHED}),
    State.FAILED: frozenset({State.LEASED}),
    State.DROPPED: frozenset({State.ISSUED, State.LEASED, State.FINISHED}),
}


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the ledger."""

    to: State
    rollout: str = ""
    """The rollout's name; empty for ``committed``, which concerns all that were consumed."""
    step: int = -1
    """For ``consumed`` the training step, for ``committed`` the last step that the checkpoint holds."""
    attempt: int = 0
    reason: str = ""
    """For ``failed`` the class of the failure, for ``dropped`` why, for ``leased`` who has it, for ``issued`` the task."""
    again: bool = False
    """This attempt failed, and there will be another: the rollout is back at ``issued``."""


class Position(msgspec.Struct, frozen=True):
    """A place in the ledger: how many bytes come before it, and the checksum of the last of their lines."""

    size: int
    checksum: str


BEGINNING = Position(0, "0" * _DIGITS)


class Audit(msgspec.Struct, frozen=True):
    """Where all rollouts are. ``balanced`` if every one that was issued ended exactly once."""

    issued: int
    consumed: int
    """Committed ones included."""
    committed: int
    failed: int
    dropped: int
    open: int
    """Not ended yet."""
    attempts_failed: int
    """Attempts that failed and were repeated."""

    @property
    def balanced(self) -> bool:
        """``issued = consumed + failed + dropped``."""
        return self.open == 0 and self.issued == self.consumed + self.failed + self.dropped


class Ledger:
    """The ledger of one run, open for reading and appending by one process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.position = BEGINNING
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._replay()
        self._cut(self.position.size)
        self._file: BinaryIO = path.open("ab")

    # -------------------------------------------------------------------------------------------------------------- writing

    def issue(self, rollout: str, task: str = "") -> None:
        """Name a rollout that is to be played."""
        self._append(Event(State.ISSUED, rollout, reason=task))

    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None:
        """Somebody plays it."""
        self._append(Event(State.LEASED, rollout, attempt=attempt, reason=worker))

    def finish(self, rollout: str) -> None:
        """It was played to an end and has a trajectory."""
        self._append(Event(State.FINISHED, rollout))

    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False) -> None:
        """The attempt failed; with ``again`` there will be another."""
        self._append(Event(State.FAILED, rollout, attempt=attempt, reason=failure, again=again))

    def drop(self, rollout: str, reason: str) -> None:
        """It will not be trained on."""
        self._append(Event(State.DROPPED, rollout, reason=reason))

    def consume(self, rollouts: Iterable[str], step: int) -> None:
        """These were trained on in ``step``."""
        for rollout in rollouts:
            self._append(Event(State.CONSUMED, rollout, step=step))

    def commit(self, step: int) -> Position:
        """A checkpoint holds everything up to ``step``. On return the ledger is on the disk."""
        self._append(Event(State.COMMITTED, step=step))
        self.sync()
        return self.position

    def sync(self) -> None:
        """Wait until all events are on the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write what is left and close the file."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, event: Event) -> None:
        self._apply(event)
        line = _line(event, self.position.checksum)
        self._file.write(line)
        self.position = Position(self.position.size + len(line), line[:_DIGITS].decode())

    # -------------------------------------------------------------------------------------------------------------- reading

    def state(self, rollout: str) -> State | None:
        """Where ``rollout`` is; ``None`` if it was never issued."""
        return self._states.get(rollout)

    def rollouts(self, *states: State) -> list[str]:
        """The names of all rollouts in these states, in the order they were issued."""
        return [name for name, state in self._states.items() if state in states]

    def audit(self) -> Audit:
        """Count everything."""
        count = Counter(self._states.values())
        open_ = sum(count[state] for state in (State.ISSUED, State.LEASED, State.FINISHED))
        return Audit(
            issued=len(self._states),
            consumed=count[State.CONSUMED] + count[State.COMMITTED],
            committed=count[State.COMMITTED],
            failed=count[State.FAILED],
            dropped=count[State.DROPPED],
            open=open_,
            attempts_failed=self._attempts_failed,
        )

    def holds(self, position: Position) -> bool:
        """Whether the readable part of the ledger goes through ``position``."""
        self._file.flush()
        with self.path.open("rb") as file:
            places = [place for _, place in _events(file.read(position.size))]
        return (places or [BEGINNING])[-1] == position

    def rewind(self, position: Position) -> None:
        """Go back to ``position``. What came after it is put aside, beside the ledger."""
        if not self.holds(position):
            raise UsageError(f"{self.path.name} does not go through byte {position.size}: that checkpoint has another ledger")
        self._file.close()
        self._cut(position.size)
        self._replay()
        self._file = self.path.open("ab")

    # ------------------------------------------------------------------------------------------------------------- internals

    def _apply(self, event: Event) -> None:
        if event.to is State.COMMITTED:
            for rollout in [name for name, step in self._uncommitted.items() if step <= event.step]:
                self._states[rollout] = State.COMMITTED
                del self._uncommitted[rollout]
            return
        present = self._states.get(event.rollout)
        if present not in _FOLLOWS[event.to]:
            raise UsageError(f"rollout {event.rollout} is {present or 'not issued'}: it cannot become {event.to}")
        self._states[event.rollout] = State.ISSUED if event.again else event.to
        self._attempts_failed += event.again
        if event.to is State.CONSUMED:
            self._uncommitted[event.rollout] = event.step

    def _replay(self) -> None:
        """Read the file from its beginning, as far as it makes sense."""
        self._states: dict[str, State] = {}
        self._uncommitted: dict[str, int] = {}
        self._attempts_failed = 0
        self.position = BEGINNING
        for event, position in _events(self.path.read_bytes()):
            try:
                self._apply(event)
            except UsageError:
                return
            self.position = position

    def _cut(self, size: int) -> None:
        """Put aside everything after ``size`` bytes. The rest is copied before it is cut, so no crash can lose it."""
        data = self.path.read_bytes()
        if len(data) == size:
            return
        aside = self.path.with_name(
            f"{self.path.name}.aside-{len(list(self.path.parent.glob(f'{self.path.name}.aside-*'))):04d}"
        )
        with aside.open("wb") as file:
            file.write(data[size:])
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent)
        with self.path.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())


def _line(event: Event, previous: str) -> bytes:
    body = msgspec.json.encode(event)
    return _checksum(previous, body).encode() + b" " + body + b"\n"


def _checksum(previous: str, body: bytes) -> str:
    return hashlib.blake2b(previous.encode() + body, digest_size=_DIGITS // 2).hexdigest()


def _events(data: bytes) -> Iterable[tuple[Event, Position]]:
    """The events of the longest valid prefix of ``data``, each with the position after it."""
    position = BEGINNING
    while (end := data.find(b"\n", position.size)) >= 0:
        checksum, _, body = data[position.size : end].partition(b" ")
        if checksum.decode("ascii", "replace") != _checksum(position.checksum, body):
            return
        try:
            event = msgspec.json.decode(body, type=Event)
        except msgspec.MsgspecError as error:
            raise SchemaError(f"a ledger line with a valid checksum is not an event: {error}") from None
        position = Position(end + 1, checksum.decode())
        yield event, position
