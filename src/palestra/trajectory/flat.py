"""A trajectory as the flat sequences that other trainers take: prompt, response, mask, log-probs and rewards.

Each segment becomes one sequence. The prompt is everything before the first sampled token; the response is the rest, with the
observations between two turns inside it and masked out. Segments are never merged: the model saw them as separate contexts.
"""

import msgspec
import numpy as np

from palestra.foundation.encoding import Floats, Ints, floats, ints
from palestra.trajectory.episode import Trajectory
from palestra.trajectory.segment import Segment

__all__ = ["FlatSegment", "flatten"]


class FlatSegment(msgspec.Struct, frozen=True):
    """One segment, split into prompt and response. All arrays except ``prompt`` have one entry per token of the response."""

    prompt: Ints
    response: Ints
    mask: Ints
    """1 on sampled tokens, 0 on the tokens of observations."""
    logprobs: Floats
    """The log-probability of each sampled token; 0 on the others."""
    rewards: Floats
    """The reward of a turn, on the last token that was sampled in it; 0 elsewhere."""
    turns: Ints
    """The turn of each sampled token; -1 on the others."""
    versions: Ints
    """The weight version that sampled each token; -1 on the others."""


def flatten(trajectory: Trajectory) -> list[FlatSegment]:
    """Return one ``FlatSegment`` per segment of ``trajectory``; an empty list if no token was sampled.

    The rewards of all segments add up to ``trajectory.reward``. If a turn has sampled no token, its reward is on the last token
    that was sampled before it, or else on the first turn's last token. A trajectory that failed has segments, too: look at
    ``trajectory.stop.failed`` before you train on them.

    Example::

        for flat in flatten(trajectory):
            print(len(flat.prompt), flat.response.tolist(), flat.mask.tolist())
    """
    paid = _rewards_by_reply(trajectory)
    return [
        _flat(segment, {stop: reward for (at, stop), reward in paid.items() if at == number})
        for number, segment in enumerate(trajectory.segments)
    ]


def _rewards_by_reply(trajectory: Trajectory) -> dict[tuple[int, int], float]:
    """(segment, index after the token) → reward, for the last sampled token of every turn."""
    replies: dict[int, list[tuple[int, int]]] = {}
    for number, segment in enumerate(trajectory.segments):
        for span in segment.spans:
            if span.stop > span.start:
                replies.setdefault(span.turn, []).append((number, span.stop))
    if not replies:
        return {}
    last = {turn: _reply_among(ends, trajectory, turn) for turn, ends in replies.items()}
    reply_end = last[min(last)]
    paid = dict.fromkeys(last.values(), 0.0)
    for number, turn in enumerate(trajectory.turns):
        reply_end = last.get(number, reply_end)
        paid[reply_end] += turn.reward
    return paid


def _reply_among(ends: list[tuple[int, int]], trajectory: Trajectory, turn: int) -> tuple[int, int]:
    """Where the reply ends. The notes of a turn are sampled before it, but their segment may have been opened later."""
    usage = trajectory.turns[turn].completion.usage if turn < len(trajectory.turns) else None
    end = usage.prompt_tokens + usage.completion_tokens if usage is not None else -1
    return next(((segment, stop) for segment, stop in ends if stop == end), ends[-1])


def _flat(segment: Segment, paid: dict[int, float]) -> FlatSegment:
    start = segment.spans[0].start
    mask = segment.mask[start:]
    logprobs = np.zeros(len(mask), dtype=np.float32)
    logprobs[mask] = segment.logprobs
    rewards = np.zeros(len(mask), dtype=np.float32)
    for stop, reward in paid.items():
        rewards[stop - start - 1] = reward
    return FlatSegment(
        prompt=ints(segment.ids[:start]),
        response=ints(segment.ids[start:]),
        mask=ints(mask),
        logprobs=floats(logprobs),
        rewards=floats(rewards),
        turns=ints(segment.turns[start:]),
        versions=ints(segment.versions[start:]),
    )
