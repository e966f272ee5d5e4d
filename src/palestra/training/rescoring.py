"""Rewards that are computed after the episodes: by a grader for each episode, then by a group reward for each group.

Both are named in the recipe (``play.grader``, ``play.group_reward``), both may be plain or ``async`` functions, and both see
finished episodes as recorded. A plain function runs in a thread, so it does not block the episodes of later steps. Failed
episodes have no reward, and keep none. If the function raises, the run stops; the same command resumes it from the latest
checkpoint.
"""

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from palestra.errors import UsageError
from palestra.recipes.play import GRADER, GROUP_REWARD
from palestra.trajectory import Trajectory, TrajectoryGroup

__all__ = ["Rescoring"]


class Rescoring:
    """The grader and the group reward of a run."""

    def __init__(self, grader: Callable[[Any], Any] | None, group_reward: Callable[[Any], Any] | None) -> None:
        self._grader = grader
        self._group_reward = group_reward

    async def apply(self, groups: Sequence[TrajectoryGroup]) -> list[TrajectoryGroup]:
        """Return ``groups`` with the rewards to learn from."""
        if self._grader is not None:
            members = [member for group in groups for member in group.members]
            finished = [member for member in members if _has_reward(member)]
            scores = iter(await _call_all(self._grader, finished))
            graded = [_graded(member, next(scores)) if _has_reward(member) else member for member in members]
            groups = _regrouped(groups, graded)
        if self._group_reward is not None:
            answers = await _call_all(self._group_reward, groups)
            groups = [_compared(group, answer) for group, answer in zip(groups, answers, strict=True)]
        return list(groups)


async def _call_all(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
    if not _is_async(function):
        return await asyncio.to_thread(lambda: [function(item) for item in items])
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(function(item)) for item in items]
    return [task.result() for task in tasks]


def _is_async(function: Callable[[Any], Any]) -> bool:
    """Whether calling ``function``, or the object that a hook names with keywords, returns a coroutine."""
    called = function.func if isinstance(function, partial) else function
    return inspect.iscoroutinefunction(called) or inspect.iscoroutinefunction(type(called).__call__)


def _has_reward(member: Trajectory) -> bool:
    return not member.stop.failed and bool(member.turns)


def _graded(member: Trajectory, score: Any) -> Trajectory:
    """``member`` with ``score`` as its only reward, at the last turn. A ``bool`` also sets whether the task was solved."""
    if score is None:
        return member
    info = {"grader": _number(GRADER.key, score), **({"success": score} if isinstance(score, bool) else {})}
    turns = tuple(msgspec.structs.replace(turn, reward=0.0) for turn in member.turns[:-1])
    last = member.turns[-1]
    paid = msgspec.structs.replace(last, reward=info["grader"], info={**last.info, **info})
    return msgspec.structs.replace(member, turns=(*turns, paid))


def _compared(group: TrajectoryGroup, answer: Any) -> TrajectoryGroup:
    """``group`` with a number of ``answer`` added to the last reward of every member; ``None`` adds nothing."""
    if not isinstance(answer, Sequence) or len(answer) != len(group.members):
        raise UsageError(
            f"{GROUP_REWARD.key} must return a list with one number per member ({len(group.members)}), got {answer!r}"
        )
    return msgspec.structs.replace(group, members=tuple(map(_added, group.members, answer)))


def _added(member: Trajectory, value: Any) -> Trajectory:
    if value is None or not _has_reward(member):
        return member
    last, number = member.turns[-1], _number(GROUP_REWARD.key, value)
    paid = msgspec.structs.replace(last, reward=last.reward + number, info={**last.info, "group_reward": number})
    return msgspec.structs.replace(member, turns=(*member.turns[:-1], paid))


def _number(key: str, value: Any) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{key} must return finite numbers, got {value!r}")
    return float(value)


def _regrouped(groups: Sequence[TrajectoryGroup], members: Sequence[Trajectory]) -> list[TrajectoryGroup]:
    rest = iter(members)
    return [msgspec.structs.replace(group, members=tuple(next(rest) for _ in group.members)) for group in groups]
