"""What a step looked like in numbers, over all and for each environment. Failed episodes are counted, never averaged."""

from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np

from palestra.training.experience import Experience
from palestra.trajectory import StopReason, Trajectory, TrajectoryGroup

__all__ = ["summarise", "verdicts"]


def summarise(groups: Sequence[TrajectoryGroup], experience: Experience) -> dict[str, float]:
    """Flat names to numbers: ``reward``, ``success``, …, ``stop/turn_limit``, ``env/game:x/reward``, ``poison/reward_nan``."""
    members = [member for group in groups for member in group.members]
    numbers = _of(members)
    for env in sorted({member.task.env for member in members}):
        numbers |= {f"env/{env}/{name}": value for name, value in _of([m for m in members if m.task.env == env]).items()}
    numbers |= {f"members/{name}": count for name, count in msgspec.structs.asdict(experience.counts).items()}
    numbers |= {f"poison/{name}": count for name, count in experience.poisons.items()}
    numbers |= {f"stop/{reason}": count for reason, count in Counter(m.stop for m in members).items()}
    return {**numbers, "tokens": len(experience.batch.positions), "staleness": experience.staleness}


def _of(members: Sequence[Trajectory]) -> dict[str, float]:
    finished = [member for member in members if not member.stop.failed]
    numbers: dict[str, float] = {"episodes": len(finished), "failed": len(members) - len(finished)}
    if finished:
        sampled = [sum(len(segment.logprobs) for segment in member.segments) for member in finished]
        numbers |= {
            "reward": float(np.mean([member.reward for member in finished if member.reward is not None])),
            "turns": float(np.mean([len(member.turns) for member in finished])),
            "format_errors": float(np.mean([_is_malformed(member) for member in finished])),
            "tokens_an_episode": float(np.mean(sampled)),
        }
    said = verdicts(members)
    return {**numbers, "success": float(np.mean(said))} if said else numbers


def verdicts(members: Sequence[Trajectory]) -> list[bool]:
    """Who solved the task, among members whose environment judges. One that was cut before it could be judged has not."""
    judging = {member.task.env for member in members if member.success is not None}
    return [
        bool(member.success)
        for member in members
        if member.task.env in judging
        and not member.stop.failed
        and (member.success is not None or member.stop is not StopReason.TERMINATED)
    ]


def _is_malformed(member: Trajectory) -> bool:
    """Whether the episode ended with something that was no move."""
    cut = member.stop in (StopReason.LENGTH_CUT, StopReason.EMPTY_COMPLETION)
    return cut or bool(member.turns and member.turns[-1].info.get("format_error"))
