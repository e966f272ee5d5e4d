"""Limits of a chat policy: a budget, and a limit on concurrent calls that falls when the server asks for it."""

import asyncio
from collections import deque
from dataclasses import dataclass
from time import monotonic

import msgspec

from palestra.trajectory import Usage

__all__ = ["Budget", "Gate", "SpendingRecord"]


class Budget(msgspec.Struct, frozen=True):
    """Limits on spending. ``None`` means no limit."""

    tokens: int | None = None
    """Prompt and completion tokens of the whole run."""
    dollars: float | None = None
    """US dollars of the whole run."""
    call_tokens: int | None = None
    """Tokens of one completion."""
    call_dollars: float | None = None
    """US dollars of one completion."""


@dataclass
class SpendingRecord:
    """Calls and spending so far."""

    calls: int = 0
    """Completions that were received."""
    retries: int = 0
    """Calls that were repeated."""
    lost: int = 0
    """Calls that failed after they were sent: the server may have charged for them; the amount is unknown."""
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
        """Return whether the budget is used up."""
        tokens = self.prompt_tokens + self.completion_tokens
        return (budget.tokens is not None and tokens >= budget.tokens) or (
            # A sum of many small prices can be a rounding error below the budget.
            budget.dollars is not None and self.dollars >= budget.dollars * (1.0 - 1e-9)
        )


class Gate:
    """Limits concurrent calls. A "too many requests" halves the limit; every answered call raises it a little again."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.width = float(most)
        self.inside = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._narrowed = 0.0
        self._closed_until = 0.0

    async def enter(self) -> None:
        """Wait until a call may start."""
        if not self._queue and self.inside < self.width and not self._closed_until:
            self.inside += 1
            return
        admission: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(admission)
        self._let_in()
        try:
            await admission
        except asyncio.CancelledError:
            if admission.done() and not admission.cancelled():
                self.leave()  # it was admitted at the moment when it gave up
            raise

    def leave(self) -> None:
        """Report that a call has ended."""
        self.inside -= 1
        self._let_in()

    def answered(self) -> None:
        """Report that a call succeeded: raise the limit a little."""
        if self.width < self.most:
            self.width = min(self.most, self.width + 1.0 / self.width)

    def refused(self, wait: float) -> None:
        """The server refused a call: lower the limit, once per burst, and admit no call for ``wait`` seconds."""
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
            admission = self._queue.popleft()
            if not admission.done():
                self.inside += 1
                admission.set_result(None)
