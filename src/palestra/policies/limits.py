"""What holds a chat policy back: a budget, and a gate that narrows when the server says it is asked too much."""

import asyncio
from collections import deque
from dataclasses import dataclass
from time import monotonic

import msgspec

from palestra.trajectory import Usage

__all__ = ["Budget", "Gate", "Ledger"]


class Budget(msgspec.Struct, frozen=True):
    """What may be spent. ``None`` means without limit."""

    tokens: int | None = None
    """By the whole run, prompt and completion together."""
    dollars: float | None = None
    """By the whole run."""
    call_tokens: int | None = None
    """By one completion."""
    call_dollars: float | None = None
    """By one completion."""


@dataclass
class Ledger:
    """What was asked and spent so far."""

    calls: int = 0
    """Completions that came back."""
    retries: int = 0
    """Calls that had to be made again."""
    lost: int = 0
    """Calls that failed after they were sent: the server may have charged for them, nobody knows how much."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0

    def add(self, usage: Usage) -> None:
        """Count a completion."""
        self.calls += 1
        self.prompt_tokens += usage.prompt_tokens
        self.completion_tokens += usage.completion_tokens
        self.dollars += usage.dollars

    def exhausts(self, budget: Budget) -> bool:
        """Whether nothing may be asked for any more."""
        tokens = self.prompt_tokens + self.completion_tokens
        return (budget.tokens is not None and tokens >= budget.tokens) or (
            budget.dollars is not None and self.dollars >= budget.dollars
        )


class Gate:
    """Lets so many calls through at once. A "too many requests" halves that, every answered call widens it a little again."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.width = float(most)
        self.inside = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._narrowed = 0.0
        self._closed_until = 0.0

    async def enter(self) -> None:
        """Wait for a place."""
        if not self._queue and self.inside < self.width and not self._closed_until:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        self._let_in()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()  # it was let in at the very moment it gave up
            raise

    def leave(self) -> None:
        """Give the place back."""
        self.inside -= 1
        self._let_in()

    def answered(self) -> None:
        """A call went well."""
        if self.width < self.most:
            self.width = min(self.most, self.width + 1.0 / self.width)

    def refused(self, wait: float) -> None:
        """The server is asked too much: narrow, once for all calls of a burst, and let nobody in for ``wait`` seconds."""
        now = monotonic()
        if now >= self._narrowed:
            self.width = max(1.0, self.width / 2)
            self._narrowed = now + max(wait, 0.2)
        if wait > 0 and now + wait > self._closed_until:
            self._closed_until = now + wait
            asyncio.get_running_loop().call_later(wait, self._reopen)

    def _reopen(self) -> None:
        if monotonic() >= self._closed_until - 0.001:
            self._closed_until = 0.0
            self._let_in()

    def _let_in(self) -> None:
        while self._queue and self.inside < self.width and not self._closed_until:
            place = self._queue.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)
