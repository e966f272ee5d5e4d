"""How many connections a server holds, and which ones it closes when there are too many.

Every accepted connection takes a slot. A slot is unauthenticated until its peer presents a token, and at most
``unauthenticated`` such slots exist. To make room for a new connection, the server closes the oldest one that has no request
in progress; it closes each after ``patience`` seconds. So a peer without a token can neither use up the descriptors of the
process nor block other peers. The owners of tokens share the remaining slots equally, so one token cannot lock out another.
"""

import asyncio
from itertools import islice, takewhile

from palestra.serve.shares import Shares

__all__ = ["ConnectionSlot", "Slots"]


class ConnectionSlot:
    """One accepted connection, from ``accept`` to its end."""

    __slots__ = ("_slots", "_timer", "accepting", "answering", "owner", "transport")

    def __init__(self, slots: "Slots") -> None:
        self._slots = slots
        self._timer: asyncio.TimerHandle | None = None
        self.owner: bytes | None = None
        self.accepting: asyncio.Task[None] | None = None
        """Creates the transport, which with TLS takes a handshake."""
        self.transport: asyncio.Transport | None = None
        self.answering = False
        """Whether an HTTP request has arrived and is being answered."""

    def authenticate(self, owner: bytes) -> bool:
        """Record that the peer presented the token of ``owner``. Return ``False`` if that owner's share is used up."""
        return self._slots.authenticate(self, owner)

    def authenticate_for(self, owner: bytes, seconds: float) -> bool:
        """Do the same for one HTTP request; the peer must read its answer within ``seconds``."""
        if not self.authenticate(owner):
            return False
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)
        return True

    def answered(self) -> None:
        """Record that the HTTP request is over: the next one on this connection must present its own token."""
        self._stop_timer()
        self.answering = False
        self._slots.renew(self)

    def free(self) -> None:
        """Record that the connection is closed."""
        self._stop_timer()
        self._slots.free(self)

    def abort(self) -> None:
        """Close the connection at once and drop unsent data."""
        if self.transport is not None:
            self.transport.abort()
        elif self.accepting is not None:
            self.accepting.cancel()
        self.free()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Slots:
    """The slots of one server: ``total`` slots for the owners of ``owners`` tokens."""

    def __init__(self, total: int, unauthenticated: int, owners: int, patience: float) -> None:
        self._most_unauthenticated = unauthenticated
        self.patience = patience
        self._waiting: dict[ConnectionSlot, float] = {}  # unauthenticated slots → time taken, oldest first
        self._authenticated: set[ConnectionSlot] = set()
        self._held = Shares(total - unauthenticated, owners)
        self.evicted = 0
        """Number of unauthenticated connections that were closed because there were too many or they were too slow."""

    def __len__(self) -> int:
        return len(self._waiting) + len(self._authenticated)

    def take(self) -> ConnectionSlot:
        """Return a slot for a connection that was just accepted."""
        if len(self._waiting) >= self._most_unauthenticated:
            self.evict(1)
        slot = ConnectionSlot(self)
        self._waiting[slot] = asyncio.get_running_loop().time()
        return slot

    def authenticate(self, slot: ConnectionSlot, owner: bytes) -> bool:
        """Count ``slot`` against ``owner``'s share, if there is room."""
        if slot not in self._waiting or not self._held.room(owner):
            return False
        del self._waiting[slot]
        self._authenticated.add(slot)
        self._held.take(owner)
        slot.owner = owner
        return True

    def renew(self, slot: ConnectionSlot) -> None:
        """Count ``slot`` as unauthenticated from now on."""
        if slot.owner is not None or slot in self._waiting:
            self.free(slot)
            self._waiting[slot] = asyncio.get_running_loop().time()

    def free(self, slot: ConnectionSlot) -> None:
        """Forget ``slot``."""
        self._waiting.pop(slot, None)
        self._authenticated.discard(slot)
        if slot.owner is not None:
            self._held.give_back(slot.owner)
            slot.owner = None

    def evict(self, count: int) -> None:
        """Close the ``count`` oldest unauthenticated connections; those with a request in progress come last."""
        silent = [*islice((slot for slot in self._waiting if not slot.answering), count)]
        for slot in silent or [*islice(self._waiting, count)]:
            self._close(slot)

    def expire(self) -> None:
        """Close every connection that has presented no token for ``patience`` seconds."""
        before = asyncio.get_running_loop().time() - self.patience
        for slot, _ in [*takewhile(lambda entry: entry[1] < before, self._waiting.items())]:
            self._close(slot)

    def close(self) -> None:
        """Close every connection."""
        for slot in (*self._waiting, *self._authenticated):
            slot.abort()

    def _close(self, slot: ConnectionSlot) -> None:
        self.evicted += 1
        slot.abort()
