import copy
import errno
import hashlib
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.errors import Boundary, EnvError, InfrastructureError, MissingExtra
from palestra.foundation.encoding import decode_json, decode_msgpack, encode_json, encode_msgpack, floats, ints, tame
from palestra.trajectory import (
    LARGEST_REWARD,
    Completion,
    Failure,
    Finish,
    Image,
    Message,
    Phase,
    Segment,
    Span,
    StopReason,
    Task,
    Text,
    Tokens,
    ToolCall,
    ToolResult,
    Trajectory,
    TrajectoryGroup,
    Turn,
    Usage,
    observed,
    text_of,
    verdicts,
    writable,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
numbers = st.integers(-(2**53), 2**53)
reals = st.floats(-LARGEST_REWARD, LARGEST_REWARD)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, reals, texts),
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner),
    max_leaves=5,
)
dicts = st.dictionaries(texts, values, max_size=3)
contents = st.one_of(texts, st.lists(st.builds(Text, texts) | st.builds(Image, st.binary(max_size=9)), max_size=3).map(tuple))
ids = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5)


@st.composite
def tokens(draw: st.DrawFn) -> Tokens:
    sampled = draw(ids)
    logprobs = draw(st.lists(st.floats(-9, 0, width=32), min_size=len(sampled), max_size=len(sampled)))
    return Tokens(ints(draw(ids)), ints(sampled), floats(logprobs), draw(st.integers(0, 9)))


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    cuts = sorted(draw(st.lists(st.integers(0, 6), min_size=4, max_size=4)))
    spans = (Span(cuts[0], cuts[1], 0), Span(cuts[2], cuts[3], 1, draw(st.integers(0, 9))))
    sampled = cuts[1] - cuts[0] + cuts[3] - cuts[2]
    logprobs = draw(st.lists(st.floats(-9, 0, width=32), min_size=sampled, max_size=sampled))
    return Segment(ints(draw(st.lists(st.integers(0, 99), min_size=6, max_size=6))), spans, floats(logprobs))


tasks = st.builds(Task, texts, numbers, st.none() | numbers, texts, dicts)
completions = st.builds(
    Completion,
    texts,
    st.sampled_from(Finish),
    texts,
    st.none() | tokens(),
    st.lists(tokens(), max_size=2).map(tuple),
    st.none() | st.builds(Usage, numbers, numbers, reals),
)
turns = st.builds(Turn, contents, completions, reals, dicts, reals, reals)
failures = st.builds(Failure, st.sampled_from(Boundary), st.sampled_from(Phase), texts, texts, numbers, texts)
trajectories = st.builds(
    Trajectory,
    tasks,
    st.sampled_from(StopReason),
    st.lists(turns, max_size=2).map(tuple),
    st.lists(segments(), max_size=2).map(tuple),
    contents,
    dicts,
    st.lists(failures, max_size=2).map(tuple),
    texts,
    texts,
    st.booleans(),
    numbers,
    numbers,
    numbers,
    numbers,
    reals,
)
data = st.one_of(
    tasks,
    st.builds(Message, st.sampled_from(["system", "user", "assistant", "tool"]), contents, texts),
    st.builds(ToolCall, texts, dicts, texts),
    st.builds(ToolResult, texts, st.booleans()),
    tokens(),
    completions,
    turns,
    segments(),
    failures,
    trajectories,
    st.builds(TrajectoryGroup, tasks, st.lists(trajectories, max_size=2).map(tuple)),
)


@settings(max_examples=60, deadline=None)
@given(data)
def test_every_datum_survives_both_formats(datum: Any) -> None:
    for encode, decode in ((encode_json, decode_json), (encode_msgpack, decode_msgpack)):
        there = encode(datum)
        back = decode(there, type(datum))
        assert type(back) is type(datum)
        assert encode(back) == there
        assert encode_msgpack(back) == encode_msgpack(datum)


def test_sampled_ids_without_logprobs_are_refused() -> None:
    with pytest.raises(ValueError, match="1 sampled ids but 0 log-probs"):
        Tokens(ints([]), ints([1]), floats([]))
    with pytest.raises(ValueError, match="2 sampled tokens but 1 log-probs"):
        Segment(ints([1, 2]), (Span(0, 2, 0),), floats([0.0]))
    with pytest.raises(ValueError, match="overlaps"):
        Segment(ints([1, 2]), (Span(0, 3, 0),), floats([0.0]))


def test_a_task_is_hashable_frozen_and_can_be_copied_and_pickled() -> None:
    task = Task("a", 1, params={"x": [1, {"y": 2}]})
    assert hash(task) == hash(Task("a", 1, params={"x": [1, {"y": 2}]}))
    assert copy.deepcopy(task) == task == pickle.loads(pickle.dumps(task))  # noqa: S301
    assert hash(pickle.loads(pickle.dumps(task))) == hash(task)  # noqa: S301
    for change in (
        lambda: task.params.update(z=1),
        lambda: task.params.__setitem__("z", 1),
        lambda: copy.copy(task).params.pop("x"),
        lambda: pickle.loads(pickle.dumps(task)).params.clear(),  # noqa: S301
    ):
        with pytest.raises(TypeError, match="make a new Task"):
            change()


@settings(max_examples=40, deadline=None)
@given(tasks, tasks)
def test_two_tasks_have_the_same_key_only_if_all_but_the_name_and_seed_agree(one: Task, other: Task) -> None:
    same = (one.index, one.split, encode_msgpack(one.params)) == (other.index, other.split, encode_msgpack(other.params))
    assert (one.key == other.key) == same


def _cycle() -> dict[str, Any]:
    loop: dict[str, Any] = {}
    loop["me"] = loop
    return loop


@pytest.mark.parametrize(
    "nuisance",
    [
        object(),
        {1, 2},
        lambda: None,
        2**80,
        {"deep": [object()]},
        "\ud800",
        {"\ud800": 1},
        {(1, 2): 3},
        {1: 2, "a": 3},
        _cycle(),
        1j,
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_written_is_marked_and_the_rest_is_kept(nuisance: Any) -> None:
    turn = Turn("\ud800", Completion("act"), 1.0, {"bad": nuisance, "good": 5})
    seen = (Text("\ud801"), Image(b"x"))
    trajectory = Trajectory(Task("a"), StopReason.TERMINATED, (turn,), final_observation=seen, info={"bad": nuisance})
    back = decode_json(encode_json(writable(trajectory)), Trajectory)
    assert back.turns[0].info["good"] == 5
    assert back.reward == 1.0
    assert back.turns[0].observation == "\ufffd"
    assert back.final_observation == (Text("\ufffd"), Image(b"x"))
    assert text_of((Text("a "), Image(b"x"), Text(" b"))) == "a [image] b"


def test_a_completion_can_be_written_whatever_the_model_wrote() -> None:
    assert Completion("a\ud800", reasoning="b\udfff") == Completion("a\ufffd", reasoning="b\ufffd")


def test_success_is_what_the_last_turn_said() -> None:
    first, last = Turn("", Completion("a"), info={"success": True}), Turn("", Completion("b"))
    orders = ((first, last), (last, first), ())
    assert [Trajectory(Task("a"), StopReason.TERMINATED, order).success for order in orders] == [None, True, None]


def test_what_can_be_written_is_left_alone() -> None:
    trajectory = Trajectory(Task("a"), StopReason.TERMINATED, info={"array": np.arange(2), "number": np.float32(1)})
    assert writable(trajectory) is trajectory
    assert decode_json(encode_json(trajectory), Trajectory).info == {"array": [0, 1], "number": 1.0}
    assert tame({"x": object()}) == {"x": {"$unserialisable": "builtins.object"}}


def test_the_clock_and_tracebacks_are_not_part_of_the_digest() -> None:
    def played(seconds: float, detail: str, reward: float = 1.0) -> Trajectory:
        turn = Turn("o", Completion("a"), reward, {}, seconds, seconds)
        failure = Failure(Boundary.ENV, Phase.CLOSE, "KeyError", "x", detail=detail)
        return Trajectory(Task("a"), StopReason.TERMINATED, (turn,), failures=(failure,), seconds=seconds)

    assert played(1.0, "here").digest() == played(2.0, "there").digest()
    assert played(1.0, "here").digest() != played(1.0, "here", reward=0.5).digest()
    assert len(played(1, "").digest()) == hashlib.sha256().digest_size * 2


@pytest.mark.parametrize("stop", list(StopReason))
def test_a_failed_episode_has_no_reward_and_is_neither_terminated_nor_truncated(stop: StopReason) -> None:
    trajectory = Trajectory(Task("a"), stop, (Turn("o", Completion("a"), 2.0, {"success": 1}),))
    assert (trajectory.reward is None) == stop.failed == (trajectory.success is None)
    assert trajectory.terminated + trajectory.truncated + stop.failed == 1
    assert TrajectoryGroup(trajectory.task, (trajectory,)).rewards == (trajectory.reward,)


def test_a_failure_is_blamed_by_phase_unless_it_says_itself() -> None:
    assert Failure.of(KeyError("x"), Phase.ACT).boundary is Boundary.POLICY
    assert Failure.of(KeyError("x"), Phase.STEP).boundary is Boundary.ENV
    assert Failure.of(InfrastructureError("x"), Phase.ACT, 2) == Failure(
        Boundary.INFRASTRUCTURE, Phase.ACT, "InfrastructureError", "x", 2, "palestra.errors.InfrastructureError: x\n"
    )
    for phase in Phase:
        assert Failure.of(OSError(errno.EMFILE, "used up"), phase).boundary is Boundary.INFRASTRUCTURE
        assert Failure.of(MissingExtra("pip install x"), phase).boundary is Boundary.INFRASTRUCTURE
    told = EnvError("elsewhere")
    told.kind, told.detail = "ValueError", "the traceback"
    assert Failure.of(told, Phase.STEP) == Failure(Boundary.ENV, Phase.STEP, "ValueError", "elsewhere", 0, "the traceback")
    assert Failure.of(ValueError("\ud800"), Phase.STEP).message == "\ufffd"
    assert Failure.of(ValueError(), Phase.STEP).message == "ValueError()"


STOPS = st.sampled_from(list(StopReason))


@given(st.lists(st.tuples(st.sampled_from("ab"), STOPS, st.sampled_from([None, True, False]))))
def test_an_episode_cut_before_its_verdict_counts_as_not_solved_where_others_are_judged(
    episodes: list[tuple[str, StopReason, bool | None]],
) -> None:
    envs, stops, successes = zip(*episodes, strict=True) if episodes else ((), (), ())
    said = verdicts(envs, stops, successes)
    for (env, stop, success), verdict in zip(episodes, said, strict=True):
        judges = any(one == env and other is not None for one, _, other in episodes)
        cut = not stop.failed and stop not in (StopReason.TERMINATED, StopReason.BUDGET)
        assert verdict == (success if success is not None else False if judges and cut else None)


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        (None, "truncated"),
        *((name, name) for name in ("truncated", "turn_limit", "token_limit")),
        *((name, "truncated") for name in ("terminated", "budget", "error", "deadline", "length_cut")),
    ],
)
def test_an_environment_states_only_its_own_reasons_for_a_cut(stated: str | None, reason: str) -> None:
    assert StopReason.of_cut({} if stated is None else {"stop_reason": stated}) == reason


@pytest.mark.parametrize(("info", "role"), [({}, "user"), ({"role": "tool"}, "tool"), ({"role": "system"}, "user")])
def test_only_an_observation_that_answers_tools_has_their_role(info: dict[str, str], role: str) -> None:
    assert observed("text", info) == Message(role, "text")  # type: ignore[arg-type]
