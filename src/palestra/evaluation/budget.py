"""A limit on what an evaluation may spend, in tokens or money.

The limit is looked at before each call of the policy, so it is never passed by more than the calls that were under way when it
was reached. Episodes cut by it stop with ``budget`` and are not recorded: they say nothing about the policy, and a later run
with a larger budget plays them from their start. What every call cost is written down as it happens, so a run that was killed
still knows.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from palestra.core import Conversation, Policy
from palestra.encoding import decode_json, encode_json
from palestra.errors import UsageError
from palestra.policies import policy_name
from palestra.policies.limits import Budget, Ledger
from palestra.rollout import Players
from palestra.trajectory import Completion, Finish, Usage

__all__ = ["Budget", "Meter", "metered", "parse_budget"]

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


def parse_budget(text: str) -> Budget:
    """``5usd``, ``$2.50``, ``200000tokens``, ``1.5Mtokens``."""
    compact = text.strip().lower().replace(" ", "").replace("_", "").replace(",", "")
    if money := re.fullmatch(r"\$(\d+\.?\d*)|(\d+\.?\d*)(?:usd|\$|dollars?)", compact):
        return Budget(dollars=float(money[1] or money[2]))
    if tokens := re.fullmatch(r"(\d+\.?\d*)([kmb]?)(?:tokens?|tok)", compact):
        return Budget(tokens=round(float(tokens[1]) * _UNITS[tokens[2]]))
    raise UsageError(f'"{text}" is not a budget: write an amount of money like 5usd, or of tokens like 200ktokens')


class Meter:
    """What has been spent. With a ``log`` it goes on from what the log says and appends to it."""

    def __init__(self, budget: Budget, log: Path | None = None) -> None:
        self.budget = budget
        self.ledger = Ledger()
        self._log: BinaryIO | None = None
        if log is not None:
            # A last line without its end was cut by a kill: that call counts as one of those in flight.
            for line in log.read_bytes().split(b"\n")[:-1] if log.exists() else []:
                self.ledger.add(decode_json(line, Usage))
            self._log = open(log, "ab", buffering=0)  # noqa: SIM115 - closed by close()

    @property
    def spent(self) -> bool:
        """Whether the budget is used up."""
        return self.ledger.exhausts(self.budget)

    def add(self, completion: Completion) -> None:
        """Count one call."""
        usage = completion.usage
        if usage is None:
            tokens = completion.tokens
            usage = Usage() if tokens is None else Usage(len(tokens.prompt), len(tokens.ids))
        self.ledger.add(usage)
        if self._log is not None:
            self._log.write(encode_json(usage) + b"\n")

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
            return Completion("", Finish.BUDGET)
        completion = await self._policy.act(conversation)
        self._meter.add(completion)
        return completion


def metered(players: Players, meter: Meter) -> Players:
    """``players`` under ``meter``."""
    if isinstance(players, Mapping):
        return {name: _Metered(policy, meter) for name, policy in players.items()}
    return _Metered(players, meter)
