"""A limit on what an evaluation may spend, in tokens or money.

The limit is looked at before each call of the policy, so it is never passed by more than the calls that were under way when it
was reached. Episodes cut by it are not recorded: they say nothing about the policy, and a later run with a larger budget plays
them from their start. What every call cost is written down as it happens, so a run that was killed still knows.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import msgspec

from palestra.core import Conversation, Policy
from palestra.errors import PolicyError, UsageError
from palestra.policies import policy_name
from palestra.rollout import Players
from palestra.trajectory import Completion, Trajectory

__all__ = ["Budget", "BudgetSpent", "Meter", "cut_by_budget", "metered"]

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


class BudgetSpent(PolicyError):
    """The policy was not called, because the evaluation's budget is spent."""


class Budget(msgspec.Struct, frozen=True):
    """What may be spent; ``None`` is no limit."""

    tokens: int | None = None
    """Sent and written together."""
    dollars: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Budget":
        """``5usd``, ``$2.50``, ``200000tokens``, ``1.5Mtokens``."""
        compact = text.strip().lower().replace(" ", "").replace("_", "").replace(",", "")
        if money := re.fullmatch(r"\$(\d+\.?\d*)|(\d+\.?\d*)(?:usd|\$|dollars?)", compact):
            return cls(dollars=float(money[1] or money[2]))
        if tokens := re.fullmatch(r"(\d+\.?\d*)([kmb]?)(?:tokens?|tok)", compact):
            return cls(tokens=round(float(tokens[1]) * _UNITS[tokens[2]]))
        raise UsageError(f'"{text}" is not a budget: write an amount of money like 5usd, or of tokens like 200ktokens')


class Meter:
    """What has been spent. With a ``log`` it goes on from what the log says and appends to it."""

    def __init__(self, budget: Budget, log: Path | None = None) -> None:
        self.budget = budget
        self.tokens = 0
        self.dollars = 0.0
        self._log: BinaryIO | None = None
        if log is not None:
            self._read(log)
            self._log = open(log, "ab", buffering=0)  # noqa: SIM115 - closed by close()

    def _read(self, log: Path) -> None:
        # A last line without its end was cut by a kill: that call is counted as the next one's in flight.
        lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
        for line in lines:
            tokens, _, dollars = line.partition(b" ")
            self.tokens += int(tokens)
            self.dollars += float(dollars)

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        tokens, dollars = self.budget.tokens, self.budget.dollars
        return (tokens is not None and self.tokens >= tokens) or (dollars is not None and self.dollars >= dollars)

    def add(self, completion: Completion) -> None:
        """Count one call."""
        tokens, dollars = 0, 0.0
        if completion.usage is not None:
            tokens = completion.usage.prompt_tokens + completion.usage.completion_tokens
            dollars = completion.usage.dollars
        elif completion.tokens is not None:
            tokens = len(completion.tokens.prompt) + len(completion.tokens.ids)
        self.tokens += tokens
        self.dollars += dollars
        if self._log is not None:
            self._log.write(b"%d %r\n" % (tokens, dollars))

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()


class _Metered:
    """A policy that is not called once the budget is spent."""

    def __init__(self, policy: Policy, meter: Meter) -> None:
        self._policy = policy
        self._meter = meter
        self.name = policy_name(policy)

    async def act(self, conversation: Conversation) -> Completion:
        if self._meter.spent:
            raise BudgetSpent("the evaluation's budget is spent")
        completion = await self._policy.act(conversation)
        self._meter.add(completion)
        return completion


def metered(players: Players, meter: Meter) -> Players:
    """``players`` under ``meter``."""
    if isinstance(players, Mapping):
        return {name: _Metered(policy, meter) for name, policy in players.items()}
    return _Metered(players, meter)


def cut_by_budget(trajectory: Trajectory) -> bool:
    """Whether the budget ended this episode."""
    return any(failure.kind == BudgetSpent.__name__ for failure in trajectory.failures)
