"""The state of every rollout in an append-only file, in which no rollout can be lost or counted twice.

::

    issued → leased → finished → consumed(step) → committed(checkpoint)
               │          └────→ dropped(reason)
               └→ failed(class, attempt), finally or to be leased again; or dropped(reason)

A resumed rollout may issue a failed episode again.

At the end ``issued = consumed + failed + dropped``, each rollout exactly once; ``audit`` proves it. An event that does not
follow from the rollout's state is refused when it is written.

One event is one line: a checksum, a space, JSON. The checksum covers the line and the checksum before it, so a line that is
torn, flipped, lost, doubled or moved ends the valid part. Opening keeps the longest valid prefix and moves the rest aside.

A checkpoint records the ledger's ``position``. A resumed run calls ``rewind`` with it: later events belong to work that the
checkpoint does not contain, and are moved aside as well. The ledger holds no times and no random numbers, so a resumed run
writes the same bytes as one that was never killed.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path
from typing import Self

import msgspec

from palestra.durable.files import sync_folder
from palestra.durable.inside import Inside, named
from palestra.errors import SchemaError, UsageError

__all__ = ["BEGINNING", "Audit", "Books", "Event", "Ledger", "LedgerPosition", "State", "read_ledger"]

_DIGITS = 16


class State(StrEnum):
    """State of a rollout. The last four are final, except that a checkpoint turns ``consumed`` into ``committed``."""

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
    """The rollout's name; empty for ``committed``, which concerns all consumed rollouts."""
    step: int = -1
    """For ``committed`` the last step in the checkpoint. Otherwise the training step that took the rollout, whether it consumed
    it or found it failed or unusable; -1 if no step took it."""
    attempt: int = 0
    reason: str = ""
    """``failed``: the class of the failure, ``dropped``: the reason, ``leased``: the worker, ``issued``: the task."""
    again: bool = False
    """Whether this failed attempt is repeated: the rollout returns to ``issued``."""


class LedgerPosition(msgspec.Struct, frozen=True):
    """A position in the ledger: the number of bytes before it, and the checksum of the last line before it."""

    size: int
    checksum: str


BEGINNING = LedgerPosition(0, "0" * _DIGITS)


class Audit(msgspec.Struct, frozen=True):
    """The number of rollouts in each state. ``balanced`` if every issued one ended exactly once."""

    issued: int
    consumed: int
    """Consumed rollouts, committed ones included."""
    committed: int
    failed: int
    dropped: int
    open: int
    """Rollouts that have not ended yet."""
    attempts_failed: int
    """Failed attempts that were repeated."""

    @property
    def balanced(self) -> bool:
        """Whether ``issued = consumed + failed + dropped``."""
        return self.open == 0 and self.issued == self.consumed + self.failed + self.dropped


class Books:
    """The state of every rollout, computed from the events of a ledger."""

    def __init__(self, data: bytes) -> None:
        self._replay(data)

    def state(self, rollout: str) -> State | None:
        """Return the state of ``rollout``; ``None`` if it was never issued."""
        return self._states.get(rollout)

    def rollouts(self, *states: State) -> list[str]:
        """Return the names of all rollouts in these states, in the order in which they were issued."""
        return [name for name, state in self._states.items() if state in states]

    def step_of(self, rollout: str) -> int | None:
        """Return the training step that took ``rollout``; ``None`` if none did."""
        return self._steps.get(rollout)

    def audit(self) -> Audit:
        """Count the rollouts in each state."""
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

    def _apply(self, event: Event) -> None:
        if event.to is State.COMMITTED:
            for rollout in [name for name, step in self._uncommitted.items() if step <= event.step]:
                self._states[rollout] = State.COMMITTED
                del self._uncommitted[rollout]
            return
        present = self._states.get(event.rollout)
        reopened = event.to is State.ISSUED and event.again and present is State.FAILED
        if present not in _FOLLOWS[event.to] and not reopened:
            raise UsageError(f"rollout {event.rollout} is {present or 'not issued'}: it cannot become {event.to}")
        self._states[event.rollout] = State.ISSUED if event.again else event.to
        self._attempts_failed += event.again
        if event.step >= 0:
            self._steps[event.rollout] = event.step
        if event.to is State.CONSUMED:
            self._uncommitted[event.rollout] = event.step

    def _replay(self, data: bytes) -> None:
        """Start again with the events of ``data``, up to the first invalid one."""
        self._states: dict[str, State] = {}
        self._uncommitted: dict[str, int] = {}
        self._steps: dict[str, int] = {}
        self._attempts_failed = 0
        self.position = BEGINNING
        for event, position in _events(data):
            try:
                self._apply(event)
            except UsageError:
                return
            self.position = position


def read_ledger(path: Path | Inside) -> Books:
    """Read the ledger at ``path`` without changing it; empty if there is none."""
    return Books(path.read_bytes() if path.exists() else b"")


class Ledger(Books):
    """The ledger of one run, open for reading and appending by one process."""

    def __init__(self, path: Path | Inside) -> None:
        self.path = path = path if isinstance(path, Inside) else Inside(path.parent) / path.name
        path.parent.mkdir()
        self._file = path.open("ab")
        super().__init__(path.read_bytes())
        self._cut(self.position.size)

    # -------------------------------------------------------------------------------------------------------------- writing

    def issue(self, rollout: str, task: str = "") -> None:
        """Record a rollout that is to be played."""
        self._append(Event(State.ISSUED, rollout, reason=task))

    def reopen(self, rollout: str) -> None:
        """Issue a rollout again that failed finally in an earlier run."""
        self._append(Event(State.ISSUED, rollout, again=True))

    def lease(self, rollout: str, worker: str = "", attempt: int = 0) -> None:
        """Record that a worker plays the rollout."""
        self._append(Event(State.LEASED, rollout, attempt=attempt, reason=worker))

    def finish(self, rollout: str) -> None:
        """Record that the rollout was played to its end and has a trajectory."""
        self._append(Event(State.FINISHED, rollout))

    def fail(self, rollout: str, failure: str, attempt: int = 0, *, again: bool = False, step: int = -1) -> None:
        """Record that the attempt failed; with ``again`` there will be another. ``step`` took it nevertheless."""
        self._append(Event(State.FAILED, rollout, step, attempt, failure, again))

    def drop(self, rollout: str, reason: str, step: int = -1) -> None:
        """Record that the rollout will not be trained on. ``step`` took it nevertheless."""
        self._append(Event(State.DROPPED, rollout, step, reason=reason))

    def consume(self, rollouts: Iterable[str], step: int) -> None:
        """Record that these rollouts were trained on in ``step``."""
        for rollout in rollouts:
            self._append(Event(State.CONSUMED, rollout, step=step))

    def commit(self, step: int) -> LedgerPosition:
        """Record that a checkpoint holds everything up to ``step``, and wait until the ledger is on disk."""
        self._append(Event(State.COMMITTED, step=step))
        self.sync()
        return self.position

    def sync(self) -> None:
        """Wait until all events are on disk."""
        with named(self.path):
            self._file.flush()
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write the remaining events and close the file."""
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
        with named(self.path):
            self._file.write(line)
        self.position = LedgerPosition(self.position.size + len(line), line[:_DIGITS].decode())

    # ----------------------------------------------------------------------------------------------------------- going back

    def holds(self, position: LedgerPosition) -> bool:
        """Return whether the valid part of the ledger passes through ``position``."""
        self._file.flush()
        if position.size < 0:
            return False
        with self.path.open("rb") as file:
            positions = [following for _, following in _events(file.read(position.size))]
        return (positions or [BEGINNING])[-1] == position

    def step_at(self, position: LedgerPosition) -> int | None:
        """Return the last training step before ``position``, or 0; ``None`` if the ledger has no such position."""
        if not self.holds(position):
            return None
        with self.path.open("rb") as file:
            events = [event for event, _ in _events(file.read(position.size))]
        return max((event.step for event in events if event.to is not State.COMMITTED), default=0)

    def rewind(self, position: LedgerPosition) -> None:
        """Go back to ``position``. Later events are moved to a file beside the ledger."""
        if not self.holds(position):
            raise UsageError(f"{self.path.name} has no entry that ends at byte {position.size}: not this checkpoint's ledger")
        self._cut(position.size)
        self._replay(self.path.read_bytes())

    def before(self, is_event: Callable[[Event], bool]) -> LedgerPosition:
        """Return the position before the first event that ``is_event`` accepts; the current one if there is none."""
        self._file.flush()
        position = BEGINNING
        for event, following in _events(self.path.read_bytes()):
            if is_event(event):
                return position
            position = following
        return self.position

    # ------------------------------------------------------------------------------------------------------------- internals

    def _cut(self, size: int) -> None:
        """Move everything after ``size`` bytes aside. It is copied before it is cut, so no crash can lose it."""
        data = self.path.read_bytes()
        if len(data) == size:
            return
        with self.path.aside().open("xb") as file:
            file.write(data[size:])
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path.parent.path)
        with self.path.open("r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())


def _line(event: Event, previous: str) -> bytes:
    body = msgspec.json.encode(event)
    return _checksum(previous, body).encode() + b" " + body + b"\n"


def _checksum(previous: str, body: bytes) -> str:
    return hashlib.blake2b(previous.encode() + body, digest_size=_DIGITS // 2).hexdigest()


def _events(data: bytes) -> Iterable[tuple[Event, LedgerPosition]]:
    """Yield the events of the longest valid prefix of ``data``, each with the position after it."""
    position = BEGINNING
    while (end := data.find(b"\n", position.size)) >= 0:
        checksum, _, body = data[position.size : end].partition(b" ")
        if checksum.decode("ascii", "replace") != _checksum(position.checksum, body):
            return
        try:
            event = msgspec.json.decode(body, type=Event)
        except msgspec.MsgspecError as error:
            raise SchemaError(f"a ledger line with a valid checksum is not an event: {error}") from None
        position = LedgerPosition(end + 1, checksum.decode())
        yield event, position
