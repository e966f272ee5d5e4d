"""The rows about random and hostile actions, the same for every world that is registered."""

from collections.abc import Sequence

from rows import Row
from tests.suite.many_actions import Player, many_actions, random_player

__all__ = ["survival_rows"]


def survival_rows(ids: Sequence[str], count: int, hostile: Player, tasks: int = 0) -> list[Row]:
    """Take at least ``count`` random and as many hostile actions in the ids together; print every fault.

    The figure is the number of actions that were taken without a fault, so one fault misses the limit.
    """
    share = -(-count // len(ids))
    found = []
    for kind, player in (("random", random_player), ("hostile", hostile)):
        played = [many_actions(id, share, player, tasks) for id in ids]
        for fault in (fault for one in played for fault in one.faults):
            print(f"fault: {kind} action, {fault}")
        found.append(Row(f"{kind} actions without a fault", sum(one.actions for one in played), f">= {share * len(ids)}"))
    return found
