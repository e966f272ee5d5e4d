"""Resuming a run folder: which recorded episodes count, and which are played again.

An episode that did not fail is final. An episode that failed has no reward: the endpoint was down, the key was wrong, a machine
died. An episode that a budget cut says nothing about the policy. The same command plays both again. The old record first moves
from ``trajectories.jsonl`` to ``failed.jsonl``, so ``trajectories.jsonl`` holds every episode at most once, and no record is
lost.
"""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from palestra.durable import Inside, read_lines, replacing
from palestra.errors import SchemaError
from palestra.foundation.encoding import decode_json
from palestra.rollouts.storage import TrajectoryWriter, read_trajectories
from palestra.trajectory import StopReason, Trajectory

__all__ = ["FAILED", "TRAJECTORIES", "is_final", "resume", "set_aside"]

TRAJECTORIES = "trajectories.jsonl"
FAILED = "failed.jsonl"

_T = TypeVar("_T")


def resume(trajectories: Inside, reduce: Callable[[Trajectory], _T]) -> list[_T]:
    """Set the failed episodes in ``trajectories`` aside, and return ``reduce(trajectory)`` for each of the others."""
    if not trajectories.exists():
        return []
    read = []
    seats: set[tuple[int, int, str]] = set()
    for number, trajectory in enumerate(read_trajectories(trajectories), start=1):
        seat = (trajectory.group, trajectory.member, trajectory.player)
        if seat in seats:
            raise SchemaError(
                f"{trajectories}, line {number}: member {trajectory.member} of group {trajectory.group} was recorded before: "
                f"remove the line"
            )
        seats.add(seat)
        read.append((_key(trajectory), trajectory.stop, reduce(trajectory)))
    failed = {key for key, stop, _ in read if not is_final(stop)}
    if failed:
        _move_failed(trajectories, failed)
    return [reduced for key, _, reduced in read if key not in failed]


def is_final(stop: StopReason) -> bool:
    """Whether an episode that ended with ``stop`` is never played again."""
    return not stop.failed and stop is not StopReason.BUDGET


def set_aside(folder: Inside) -> set[tuple[int, int]]:
    """The episodes that ``folder`` has set aside, as (group, member). One that failed several times is there once."""
    file = folder / FAILED
    if not file.exists():
        return set()
    names = [decode_json(line, _EpisodeName) for line in read_lines(file)]
    return {(name.group, name.member) for name in names}


class _EpisodeName(msgspec.Struct, frozen=True):
    group: int = 0
    member: int = 0


def _key(trajectory: Trajectory) -> tuple[int, int]:
    return trajectory.group, trajectory.member


def _move_failed(trajectories: Inside, failed: set[tuple[int, int]]) -> None:
    """Move the records of ``failed`` to their own file. A process killed in between leaves them in both files."""
    with (
        replacing(trajectories) as draft,
        TrajectoryWriter(trajectories.with_name(FAILED)) as aside,
        TrajectoryWriter(draft) as kept,
    ):
        for trajectory in read_trajectories(trajectories):
            (aside if _key(trajectory) in failed else kept).write(trajectory)
