"""Trajectories made up for the tests of training: random, well formed, with one or several segments."""

import numpy as np

from palestra.foundation.encoding import floats, ints
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Trajectory, TrajectoryGroup, Turn

VOCABULARY = 31


def random_segment(rng: np.random.Generator, turns: list[int], *, longest: int = 5, version: int = 0) -> Segment:
    """A prompt, and for each turn some sampled tokens and (except after the last) what the environment said."""
    ids: list[int] = rng.integers(1, VOCABULARY, size=rng.integers(1, longest + 1)).tolist()
    spans = []
    for turn in turns:
        start = len(ids)
        ids += rng.integers(1, VOCABULARY, size=rng.integers(1, longest + 1)).tolist()
        spans.append(Span(start, len(ids), turn, version))
        if turn != turns[-1] or rng.integers(2):
            ids += rng.integers(1, VOCABULARY, size=rng.integers(1, longest + 1)).tolist()
    sampled = sum(span.stop - span.start for span in spans)
    return Segment(ints(ids), tuple(spans), floats(-rng.exponential(size=sampled) - 0.01))


def random_trajectory(
    rng: np.random.Generator, *, turns: int = 3, segments: int = 1, member: int = 0, group: int = 0, longest: int = 5
) -> Trajectory:
    """An episode of ``turns`` turns that lie in ``segments`` segments."""
    parts = [part.tolist() for part in np.array_split(np.arange(turns), segments)]
    return Trajectory(
        Task("game:x", group),
        StopReason.TERMINATED,
        turns=tuple(Turn(f"o{k}", Completion(f"a{k}"), float(rng.normal())) for k in range(turns)),
        segments=tuple(random_segment(rng, part, longest=longest) for part in parts if part),
        group=group,
        member=member,
    )


def random_group(rng: np.random.Generator, size: int, *, group: int = 0) -> TrajectoryGroup:
    """Several tries at one task."""
    members = tuple(
        random_trajectory(rng, turns=int(rng.integers(1, 5)), segments=int(rng.integers(1, 3)), member=m, group=group)
        for m in range(size)
    )
    return TrajectoryGroup(Task("game:x", group), members)
