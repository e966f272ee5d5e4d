"""Rewards for learning that differ from those of the environment. Pure functions; the recorded trajectory stays as it was.

A turn that is cut (by ``play.max_tokens``, by a full context, or without any sampled token) ends its episode. If its reward
were 0, a cut would pay more than a finished reply without a move in every environment that punishes such a reply, and the model
would first learn never to stop. ``play.cut`` sets the reward of a cut turn::

    as_invalid   what the environment pays for an empty action in the same state, so a cut never pays more than a non-move
    mask         none: the cut turn is left out of training, and so is a member without any other turn
    a number     this number

A cut turn has no future: the critic's value after it is not added. DAPO's soft penalty (``play.overlong``) lowers the reward of
a turn more and more as its length approaches ``play.max_tokens``, which rewards short replies before the cut.
"""

import msgspec

from palestra.foundation.encoding import floats, ints
from palestra.recipes.algorithms import Overlong, Shaping, checked_buffer
from palestra.trajectory import Finish, Segment, StopReason, Trajectory

__all__ = ["CUTS", "is_cut", "overlong_penalty", "shaped"]


CUTS = (StopReason.LENGTH_CUT, StopReason.CONTEXT_OVERFLOW, StopReason.EMPTY_COMPLETION)
"""Endings of an episode whose last turn was cut."""


_CUT = (Finish.LENGTH, Finish.OVERFLOW, Finish.EMPTY)


def is_cut(trajectory: Trajectory) -> bool:
    """Whether the last turn of ``trajectory`` was cut. Of several players, only the one who was cut ends with such a turn."""
    if trajectory.stop not in CUTS or not trajectory.turns:
        return False
    return not trajectory.player or trajectory.turns[-1].completion.finish in _CUT


def overlong_penalty(length: int, limit: int, buffer: int) -> float:
    """DAPO's soft penalty: 0 up to ``limit − buffer`` tokens, then linearly down to −1 at ``limit`` and beyond."""
    return -min(max(length - (limit - buffer), 0) / checked_buffer(buffer, limit), 1.0)


def shaped(trajectory: Trajectory, shaping: Shaping) -> Trajectory | None:
    """Return ``trajectory`` with the rewards to learn from; ``None`` if no turn is left."""
    if is_cut(trajectory):
        if shaping.cut == "mask":
            trajectory = _without_last_turn(trajectory)
            if not trajectory.segments:
                return None
        elif shaping.cut != "as_invalid":
            trajectory = _paid(trajectory, {len(trajectory.turns) - 1: float(shaping.cut)})
    return trajectory if shaping.overlong is None else _penalised(trajectory, shaping.overlong, shaping.limit)


def _paid(trajectory: Trajectory, rewards: dict[int, float]) -> Trajectory:
    turns = tuple(
        msgspec.structs.replace(turn, reward=rewards[k]) if k in rewards else turn for k, turn in enumerate(trajectory.turns)
    )
    return msgspec.structs.replace(trajectory, turns=turns)


def _penalised(trajectory: Trajectory, overlong: Overlong, limit: int) -> Trajectory:
    lengths = [0] * len(trajectory.turns)
    for span in (span for segment in trajectory.segments for span in segment.spans):
        lengths[span.turn] += span.stop - span.start
    penalties = [overlong.weight * overlong_penalty(length, limit, overlong.tokens(limit)) for length in lengths]
    return _paid(trajectory, {k: trajectory.turns[k].reward + penalty for k, penalty in enumerate(penalties) if penalty})


def _without_last_turn(trajectory: Trajectory) -> Trajectory:
    last = len(trajectory.turns) - 1
    segments = [_before(segment, last) for segment in trajectory.segments]
    kept = tuple(segment for segment in segments if segment is not None)
    return msgspec.structs.replace(trajectory, turns=trajectory.turns[:-1], segments=kept)


def _before(segment: Segment, turn: int) -> Segment | None:
    """``segment`` up to the first token of ``turn``; ``None`` if nothing before it was sampled."""
    kept = [span for span in segment.spans if span.turn < turn]
    if not kept or len(kept) == len(segment.spans):
        return segment if kept else None
    sampled = sum(span.stop - span.start for span in kept)
    return Segment(ints(segment.ids[: segment.spans[len(kept)].start]), tuple(kept), floats(segment.logprobs[:sampled]))
