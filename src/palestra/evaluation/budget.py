"""A limit on what an evaluation may spend, in tokens or money.

The limit is checked before each call of the policy, so it is exceeded by one call per running episode at most. When it is
reached, no episode starts any more, and a running episode stops with ``budget`` at its next call: to finish it would cost an
unknown amount more than was allowed. Such an episode is recorded as unfinished. It has no score and counts as missing: if it
were left out silently, the long episodes would be missing from the mean. A later run with a larger budget plays it from the
start. The cost of every call is written to a log at once, so a run that was killed and resumed counts it.
"""

import re
from collections.abc import Mapping
from math import isfinite
from typing import IO

from palestra.core import Conversation, Policy
from palestra.durable import Inside
from palestra.errors import PolicyError, UsageError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.policies import is_privileged, next_completion, policy_name
from palestra.policies.limits import Budget, SpendingRecord
from palestra.rollouts import Players
from palestra.trajectory import Completion, Finish, Usage

__all__ = ["Budget", "BudgetMeter", "budget_text", "larger", "metered", "parse_budget"]

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


def parse_budget(text: str) -> Budget:
    """Read a budget: ``5usd``, ``$2.50``, ``200000tokens``, ``1.5Mtokens``."""
    compact = text.strip().lower().replace(" ", "").replace("_", "").replace(",", "")
    if money := re.fullmatch(r"\$(\d+\.?\d*)|(\d+\.?\d*)(?:usd|\$|dollars?)", compact):
        return Budget(dollars=float(money[1] or money[2]))
    if tokens := re.fullmatch(r"(\d+\.?\d*)([kmb]?)(?:tokens?|tok)", compact):
        return Budget(tokens=round(float(tokens[1]) * _UNITS[tokens[2]]))
    raise UsageError(f'"{text}" is not a budget: write an amount of money like 5usd, or of tokens like 200ktokens')


def budget_text(budget: Budget) -> str:
    """``budget`` as ``parse_budget`` reads it."""
    if budget.dollars is not None:
        return f"{float(f'{budget.dollars:.6g}'):.12f}".rstrip("0").rstrip(".") + "usd"
    return f"{budget.tokens}tokens"


def larger(budget: Budget, share: float) -> Budget:
    """A budget that should suffice for all episodes, if ``budget`` has sufficed for ``share`` of them."""
    factor = 1.25 / max(share, 0.01)
    return Budget(
        tokens=None if budget.tokens is None else int(float(f"{budget.tokens * factor:.2g}")) + 1,
        dollars=None if budget.dollars is None else float(f"{budget.dollars * factor:.2g}"),
    )


class BudgetMeter:
    """What has been spent. With a ``log`` it starts from the amounts in the log and appends to it."""

    def __init__(self, budget: Budget, log: Inside | None = None) -> None:
        self.budget = budget
        self.ledger = SpendingRecord()
        self._log: IO[bytes] | None = None
        if log is not None:
            # A kill can cut the last line short. That call counts as one that was still running.
            for line in log.read_bytes().split(b"\n")[:-1] if log.exists() else []:
                self.ledger.add(decode_json(line, Usage))
            self._log = log.open("ab", buffering=0)

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
        if not (isfinite(usage.dollars) and usage.dollars >= 0 and usage.prompt_tokens >= 0 and usage.completion_tokens >= 0):
            raise PolicyError(f"the cost of a reply cannot be counted, so the budget would not hold: {usage}")
        self.ledger.add(usage)
        if self._log is not None:
            self._log.write(encode_json(usage) + b"\n")

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._log.close()


class _Metered:
    """A policy that is not called once the budget is spent."""

    def __init__(self, policy: Policy, meter: BudgetMeter) -> None:
        self._policy = policy
        self._meter = meter
        self.name = policy_name(policy)
        self.privileged = is_privileged(policy)
        if (end := getattr(policy, "end_episode", None)) is not None:
            self.end_episode = end

    async def act(self, conversation: Conversation) -> Completion:
        if self._meter.spent:
            return Completion("", Finish.BUDGET)
        completion = await next_completion(self._policy, conversation)
        self._meter.add(completion)
        return completion


def metered(players: Players, meter: BudgetMeter) -> Players:
    """``players`` whose calls ``meter`` counts and limits."""
    if isinstance(players, Mapping):
        return {name: _Metered(policy, meter) for name, policy in players.items()}
    return _Metered(players, meter)
