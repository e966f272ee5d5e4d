from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.foundation.encoding import floats, ints
from palestra.trajectory import Completion, Segment, Tokens
from palestra.trajectory.segments import SegmentRecorder

few_ids = st.lists(st.integers(0, 3), max_size=6)  # few distinct ids, so that accidental prefixes are common


@st.composite
def episodes(draw: st.DrawFn) -> list[Tokens]:
    """Completions whose prompts extend an earlier context, start over, or do something in between."""
    contexts: list[list[int]] = [[]]
    turns = []
    for _ in range(draw(st.integers(0, 8))):
        context = draw(st.sampled_from(contexts))
        kept = context if draw(st.booleans()) else context[: draw(st.integers(0, len(context)))]
        prompt = kept + draw(few_ids)
        sampled = draw(few_ids)
        turns.append(_tokens(draw, prompt, sampled))
        contexts.append(prompt + sampled)
    return turns


def _tokens(draw: st.DrawFn, prompt: list[int], sampled: list[int]) -> Tokens:
    logprobs = draw(st.lists(st.floats(-9, 0, width=32), min_size=len(sampled), max_size=len(sampled)))
    cuts = sorted(draw(st.lists(st.integers(0, len(sampled)), max_size=2)))
    updates = tuple((cut, version + 8) for version, cut in enumerate(cuts))
    return Tokens(ints(prompt), ints(sampled), floats(logprobs), version=7, updates=updates)


def record(turns: list[Tokens]) -> tuple[Segment, ...]:
    recorder = SegmentRecorder()
    for turn, tokens in enumerate(turns):
        recorder.add(tokens, turn)
    return recorder.segments()


@given(episodes())
@pytest.mark.slow
def test_every_sampled_token_is_in_exactly_one_span_with_its_own_logprob_turn_and_version(turns: list[Tokens]) -> None:
    segments = record(turns)
    per_turn: dict[int, list[tuple[int, int, float]]] = {turn: [] for turn in range(len(turns))}
    for segment in segments:
        columns = (segment.ids[segment.mask], segment.versions[segment.mask], segment.logprobs)
        for turn, *entry in zip(segment.turns[segment.mask].tolist(), *(column.tolist() for column in columns), strict=True):
            per_turn[turn].append(tuple(entry))
        assert [span.turn for span in segment.spans] == sorted(span.turn for span in segment.spans)
    for turn, tokens in enumerate(turns):
        versions = [version for start, stop, version in tokens.runs for _ in range(start, stop)]
        assert per_turn[turn] == list(zip(tokens.ids.tolist(), versions, tokens.logprobs.tolist(), strict=True))


@given(episodes())
@pytest.mark.slow
def test_a_prompt_that_extends_a_segment_never_opens_another(turns: list[Tokens]) -> None:
    seen: list[Tokens] = []
    for tokens in turns:
        before = record(seen)
        seen.append(tokens)
        extended = [s for s in before if s.ids.tolist() == tokens.prompt[: len(s.ids)].tolist()]
        assert len(record(seen)) - len(before) == (len(tokens.ids) > 0 and not extended)


@given(episodes())
@pytest.mark.slow
def test_the_context_before_every_sampled_stretch_is_the_prompt_the_engine_saw(turns: list[Tokens]) -> None:
    first_span: dict[int, tuple[Segment, int]] = {}
    for segment in record(turns):
        for span in segment.spans:
            first_span.setdefault(span.turn, (segment, span.start))
    for turn, tokens in enumerate(turns):
        if len(tokens.ids):
            segment, start = first_span[turn]
            assert segment.ids[:start].tolist() == tokens.prompt.tolist()


@given(episodes())
@pytest.mark.slow
def test_the_mask_covers_sampled_tokens_and_nothing_else(turns: list[Tokens]) -> None:
    segments = record(turns)
    assert sum(int(segment.mask.sum()) for segment in segments) == sum(len(tokens.ids) for tokens in turns)
    assert all(bool(segment.mask[-1]) for segment in segments), "a segment ends with what was sampled"


@pytest.mark.parametrize(
    ("calls", "segments"),
    [
        (
            [([1, 2], [3]), ([1, 2, 3, 4], [5, 6]), ([1, 2, 3, 4, 5, 6], [7])],
            [([1, 2, 3, 4, 5, 6, 7], [-1, -1, 0, -1, 1, 1, 2])],
        ),
        *(
            ([([1, 2], [3]), (prompt, [5])], [([1, 2, 3], [-1, -1, 0]), ([*prompt, 5], [-1] * len(prompt) + [1])])
            for prompt in ([1, 2], [1, 2, 9, 4], [], [9, 1, 2, 3])
        ),
        (
            [([1], [2]), ([7], [8]), ([1, 2, 3], [4]), ([7, 8, 9], [0])],
            [([1, 2, 3, 4], [-1, 0, -1, 2]), ([7, 8, 9, 0], [-1, 1, -1, 3])],
        ),
        ([([1], [2]), ([1], [2]), ([1, 2, 3], [4])], [([1, 2], [-1, 0]), ([1, 2, 3, 4], [-1, 1, -1, 2])]),
        (
            [([1], [2]), ([1], [2, 3, 4]), ([1, 2, 3, 4, 5], [6])],
            [([1, 2], [-1, 0]), ([1, 2, 3, 4, 5, 6], [-1, 1, 1, 1, -1, 2])],
        ),
        ([([1, 2], [])], []),
        ([([1], [2]), ([9], []), ([1, 2], [3])], [([1, 2, 3], [-1, 0, 2])]),
    ],
    ids=[
        "extends",
        "shorter",
        "changed",
        "empty",
        "shifted",
        "two agents",
        "sampled again",
        "the longest",
        "nothing",
        "silent call",
    ],
)
def test_a_call_continues_the_latest_longest_segment_that_its_prompt_extends(calls: Any, segments: Any) -> None:
    recorded = record([_plain(prompt, sampled) for prompt, sampled in calls])
    assert [(segment.ids.tolist(), segment.turns.tolist()) for segment in recorded] == segments


def test_a_recorded_completion_has_given_its_tokens_away() -> None:
    recorder = SegmentRecorder()
    silent = Completion("a")
    assert recorder.take(silent, 0) is silent
    note, reply = _plain([5], [6]), _plain([1], [2])
    assert recorder.take(Completion("b", tokens=reply, notes=(note,)), 1) == Completion("b")
    assert recorder.take(Completion("c", notes=(_plain([5, 6], [7]),)), 2) == Completion("c")
    assert [(one.ids.tolist(), one.turns.tolist()) for one in recorder.segments()] == [
        ([5, 6, 7], [-1, 1, 2]),
        ([1, 2], [-1, 1]),
    ]


def test_weights_that_change_in_mid_completion_split_the_span_and_not_the_turn() -> None:
    tokens = Tokens(ints([1]), ints([2, 3, 4]), floats([-1, -2, -3]), version=5, updates=((1, 6),))
    (segment,) = record([tokens])
    assert segment.versions.tolist() == [-1, 5, 6, 6]
    assert segment.turns.tolist() == [-1, 0, 0, 0]


@pytest.mark.parametrize("updates", [((4, 1),), ((2, 1), (1, 2)), ((-1, 1),)])
def test_updates_outside_the_sampled_ids_are_refused(updates: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="out of order or outside"):
        Tokens(ints([1]), ints([2, 3, 4]), floats([-1, -2, -3]), updates=updates)


def test_segments_may_be_asked_for_at_any_time() -> None:
    recorder = SegmentRecorder()
    assert recorder.segments() == ()
    recorder.add(_plain([1], [2]), 0)
    before = recorder.segments()
    recorder.add(_plain([1, 2, 3], [4]), 1)
    assert before[0].ids.tolist() == [1, 2]
    assert recorder.segments()[0].ids.tolist() == [1, 2, 3, 4]


def _plain(prompt: list[int], sampled: list[int]) -> Tokens:
    return Tokens(ints(prompt), ints(sampled), floats(np.full(len(sampled), -0.5)))


def test_an_episode_that_is_longer_than_any_buffer_is_recorded_whole() -> None:
    prompt = list(range(300))
    turns = []
    for turn in range(5):
        sampled = list(range(1000 * turn, 1000 * turn + 400))
        turns.append(_plain(prompt, sampled))
        prompt = [*prompt, *sampled, 7]
    (segment,) = record(turns)
    assert segment.ids.tolist() == prompt[:-1]
    assert len(segment.logprobs) == 5 * 400
