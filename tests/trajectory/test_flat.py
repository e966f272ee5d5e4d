"""Flat sequences hold every sampled token once, in its context, and every reward once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.foundation.encoding import floats, ints
from palestra.trajectory import Completion, Segment, Span, StopReason, Task, Tokens, Trajectory, Turn, Usage, flatten
from palestra.trajectory.segments import SegmentRecorder

few_ids = st.lists(st.integers(0, 3), max_size=5)


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectory:
    """Turns that extend an earlier context, start over, sample nothing, or sample twice; weights may change inside a turn."""
    recorder, turns, contexts = SegmentRecorder(), [], [list[int]()]
    for number in range(draw(st.integers(0, 6))):
        for _ in range(draw(st.integers(1, 2))):
            prompt = [9, *draw(st.sampled_from(contexts))[1:], *draw(few_ids)]
            sampled = draw(few_ids)
            logprobs = draw(st.lists(st.floats(-9, -0.5, width=32), min_size=len(sampled), max_size=len(sampled)))
            updates = ((draw(st.integers(0, len(sampled))), 8),) if draw(st.booleans()) else ()
            recorder.add(Tokens(ints(prompt), ints(sampled), floats(logprobs), version=7, updates=updates), number)
            contexts.append(prompt + sampled)
        turns.append(Turn("", Completion("x"), draw(st.integers(-3, 3)) / 2))
    return Trajectory(Task("game:Demo-v0", 1), StopReason.TERMINATED, tuple(turns), recorder.segments())


@given(trajectories())
@pytest.mark.slow
def test_prompt_and_response_are_the_segment_and_the_arrays_agree_with_it(trajectory: Trajectory) -> None:
    flats = flatten(trajectory)
    assert len(flats) == len(trajectory.segments)
    for flat, segment in zip(flats, trajectory.segments, strict=True):
        start = len(flat.prompt)
        assert [*flat.prompt, *flat.response] == segment.ids.tolist()
        assert not segment.mask[:start].any()
        assert flat.mask[0] == 1
        assert flat.mask.tolist() == segment.mask[start:].astype(int).tolist()
        assert flat.logprobs[flat.mask == 1].tolist() == segment.logprobs.tolist()
        assert not flat.logprobs[flat.mask == 0].any()
        assert flat.turns.tolist() == segment.turns[start:].tolist()
        assert flat.versions.tolist() == segment.versions[start:].tolist()
        assert not flat.rewards[flat.mask == 0].any()


@given(trajectories())
@pytest.mark.slow
def test_the_rewards_add_up_to_the_reward_of_the_episode(trajectory: Trajectory) -> None:
    flats = flatten(trajectory)
    if flats:
        assert sum(float(flat.rewards.sum()) for flat in flats) == pytest.approx(trajectory.reward)


@given(trajectories())
@pytest.mark.slow
def test_a_reward_is_on_the_last_token_of_its_turn(trajectory: Trajectory) -> None:
    last: dict[int, tuple[int, int]] = {}
    flats = flatten(trajectory)
    for number, flat in enumerate(flats):
        last |= {int(flat.turns[at]): (number, int(at)) for at in np.flatnonzero(flat.mask)}
    places = {(number, int(at)) for number, flat in enumerate(flats) for at in np.flatnonzero(flat.rewards)}
    assert places <= set(last.values())
    if len(last) == len(trajectory.turns):
        for number, turn in enumerate(trajectory.turns):
            segment, at = last[number]
            assert flats[segment].rewards[at] == turn.reward


def test_a_reward_is_on_the_reply_and_not_on_notes_in_a_segment_that_was_opened_later() -> None:
    recorder = SegmentRecorder()
    calls = [([1], [2], 0), ([5], [6], 1), ([1, 2, 3], [4], 1)]  # a reply; in the next turn notes, then the reply
    for prompt, sampled, turn in calls:
        recorder.add(Tokens(ints(prompt), ints(sampled), floats([-1.0]), version=0), turn)
    turns = (Turn("", Completion("a", usage=Usage(1, 1)), 1.0), Turn("", Completion("b", usage=Usage(3, 1)), 2.0))
    main, notes = flatten(Trajectory(Task("game:Demo-v0", 1), StopReason.TERMINATED, turns, recorder.segments()))
    assert (main.rewards.tolist(), notes.rewards.tolist()) == ([1.0, 0.0, 2.0], [0.0])


def test_an_empty_sample_has_no_reward() -> None:
    segment = Segment(ints([1, 2]), (Span(1, 1, 0),), floats([]))
    turns = (Turn("", Completion("a"), 1.0),)
    (flat,) = flatten(Trajectory(Task("game:Demo-v0", 1), StopReason.TERMINATED, turns, (segment,)))
    assert (flat.prompt.tolist(), flat.mask.tolist(), flat.rewards.tolist()) == ([1], [0], [0.0])


def test_an_episode_in_which_nothing_was_sampled_has_no_sequence() -> None:
    assert flatten(Trajectory(Task("game:Demo-v0", 1), StopReason.ERROR)) == []
