"""The metrics of a step: of its episodes, over all and per environment, and its times.

Failed and invalid episodes are counted, never averaged.
"""

import time
from collections import Counter
from collections.abc import Sequence
from itertools import islice

import numpy as np

from palestra.training.algorithms.shaping import is_cut
from palestra.training.experience import MASKED, Experience
from palestra.trajectory import Trajectory, TrajectoryGroup, verdicts

__all__ = ["StepClock", "solved", "summarize"]


def summarize(groups: Sequence[TrajectoryGroup], experience: Experience) -> dict[str, float]:
    """Return flat names and numbers: ``reward``, …, ``stop/turn_limit``, ``env/game:x/reward``, ``invalid/reward_nan``."""
    every = [member for group in groups for member in group.members]
    members = [member for group in experience.counted(groups) for member in group.members]
    numbers = _of(members)
    for env in sorted({member.task.env for member in every}):
        numbers |= {f"env/{env}/{name}": value for name, value in _of([m for m in members if m.task.env == env]).items()}
    counts = experience.members_by_outcome()
    numbers |= {"members/members": len(every), **{f"members/{name}": count for name, count in counts.items()}}
    constant = experience.counts.constant_groups
    numbers |= {"masked": counts[MASKED] / max(len(every), 1), "constant_groups": constant / max(len(groups), 1)}
    numbers |= {f"invalid/{name}": count for name, count in experience.invalid.items()}
    numbers |= {f"left_out/{name}": count for name, count in Counter(experience.left_out.values()).items()}
    numbers |= {f"stop/{reason}": count for reason, count in Counter(m.stop for m in members).items()}
    return {
        **numbers,
        **experience.measured,
        "tokens": len(experience.batch.positions),
        "staleness": experience.staleness,
    }


def _of(members: Sequence[Trajectory]) -> dict[str, float]:
    failed = sum(member.stop.failed for member in members)
    finished = [member for member in members if not member.stop.failed and member.turns]  # without turns, nothing was played
    numbers: dict[str, float] = {"episodes": len(members) - failed, "failed": failed}
    if finished:
        sampled = [sum(len(segment.logprobs) for segment in member.segments) for member in finished]
        numbers |= {
            "reward": float(np.mean([member.reward for member in finished if member.reward is not None])),
            "turns": float(np.mean([len(member.turns) for member in finished])),
            "cut": float(np.mean([is_cut(member) for member in finished])),
            "format_errors": float(np.mean([_is_malformed(member) for member in finished])),
            "tokens_per_episode": float(np.mean(sampled)),
        }
    (successes,) = solved([[member for member in members if member.turns or member.stop.failed]])
    return {**numbers, "success": float(np.mean(successes))} if successes else numbers


def solved(groups: Sequence[Sequence[Trajectory]]) -> list[list[bool]]:
    """Whether each member of each group solved its task; without the members that have no verdict.

    The groups are judged together. A group whose members were all cut by a limit has failed if another group of its environment
    has a verdict.
    """
    members = [member for group in groups for member in group]
    envs, stops = [member.task.env for member in members], [member.stop for member in members]
    of_members = iter(verdicts(envs, stops, [member.success for member in members]))
    return [[verdict for verdict in islice(of_members, len(group)) if verdict is not None] for group in groups]


def _is_malformed(member: Trajectory) -> bool:
    """Whether the last action of the episode was not a move."""
    return is_cut(member) or bool(member.turns and member.turns[-1].info.get("format_error"))


class StepClock:
    """Measures where the time of a step goes."""

    def __init__(self, saving: float) -> None:
        """``saving`` is the duration of the checkpoint before this step, in seconds."""
        self._last = time.perf_counter()
        self._laps: dict[str, float] = {"seconds/checkpoint": saving}

    def lap(self, name: str) -> None:
        """Record the time since the last lap as ``seconds/name``."""
        now = time.perf_counter()
        self._laps[f"seconds/{name}"] = now - self._last
        self._last = now

    def numbers(self, tokens: int) -> dict[str, float]:
        """The laps, and how many of a step's ``tokens`` were played and learned from a second."""
        return {**self._laps, "tokens_per_second": tokens / sum(self._laps.values())}
