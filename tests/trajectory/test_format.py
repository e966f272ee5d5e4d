"""The format of files: what is left out means the same in every version, and what cannot be written costs only itself."""

from typing import Any

import msgspec
import pytest

from palestra.errors import Boundary, SchemaError
from palestra.foundation.encoding import decode_json, encode_json, floats, ints
from palestra.trajectory import (
    AgentCall,
    AgentRecord,
    Completion,
    Failure,
    Finish,
    Message,
    Phase,
    StopReason,
    Task,
    Tokens,
    ToolCall,
    ToolResult,
    Trajectory,
    Turn,
    Usage,
    line_of,
    opening_of,
)

SHORT = '"task":{"env":"e"},"stop":"terminated"'


@pytest.mark.parametrize(
    ("line", "read"),
    [
        ('{"env":"e"}', Task("e", 0, None, "train", {})),
        ('{"role":"user","content":"c"}', Message("user", "c", "")),
        ('{"name":"n","arguments":{}}', ToolCall("n", {}, "")),
        ('{"text":"t"}', ToolResult("t", True, "")),
        ("{}", Usage(0, 0, 0.0, {})),
        ('{"text":"t"}', Completion("t", Finish.STOP, "", None, (), None)),
        ('{"observation":"o","completion":{"text":"t"}}', Turn("o", Completion("t"), 0.0, {}, 0.0, 0.0)),
        (
            '{"number":1,"turn":2,"dialect":"chat","link":"start","role":"agent"}',
            AgentCall(1, 2, "chat", "start", "agent", None, 0, 0, 0, "", (), "stop"),
        ),
        ("{}", AgentRecord((), (), {}, 0, 0, {}, {})),
        (
            '{"boundary":"env","phase":"step","kind":"k","message":"m"}',
            Failure(Boundary.ENV, Phase.STEP, "k", "m", 0, ""),
        ),
        (
            f"{{{SHORT}}}",
            Trajectory(
                Task("e"), StopReason.TERMINATED, (), (), "", {}, (), "", "", False, 0, 0, 0, 0, 0.0, 1, msgspec.UNSET
            ),
        ),
    ],
    ids=lambda value: "" if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_a_file_leaves_out_is_read_as_it_was_meant(line: str, read: Any) -> None:
    assert decode_json(line.encode(), type(read)) == read
    assert decode_json(encode_json(read), type(read)) == read


@pytest.mark.parametrize(
    "said", [5, [5], [{}], [{"role": "user"}], [{"role": "tool", "content": ""}], [{"role": "user", "content": 5}]]
)
def test_an_opening_is_a_list_of_messages(said: Any) -> None:
    assert opening_of({}) == []
    assert opening_of({"opening": [{"role": "system", "content": "c"}]}) == [Message("system", "c")]
    with pytest.raises(ValueError, match=r"info\[\"opening\"\] must be a list"):
        opening_of({"opening": said})


def test_a_trajectory_of_another_schema_is_refused() -> None:
    for version in (0, 2):
        with pytest.raises(SchemaError, match=f"schema {version}, this version of palestra reads 1"):
            decode_json(f'{{{SHORT},"schema":{version}}}'.encode(), Trajectory)


def test_the_digest_of_an_episode_is_the_same_in_every_version() -> None:
    turns = (Turn("o", Completion("a", usage=Usage(1, 2, 0.5, {"429": 1})), 1.0, {"n": 1}, 2.0, 3.0),)
    played = Trajectory(Task("e", 3, 4, "test", {"x": 1}), StopReason.TERMINATED, turns, seconds=4.0)
    assert played.digest().startswith("c270605af8dcb44d")


def test_the_digest_ignores_the_order_of_parallel_calls_and_their_retries() -> None:
    def played(numbers: list[int], *, child: int = 0, text: str = "", **counts: int) -> str:
        first, left, right, last = numbers
        calls = (
            AgentCall(first, 0, "chat", "start", "agent"),
            AgentCall(left, 0, "chat", "extended", "agent", parent=first, text=f"left{text}"),
            AgentCall(right, 0, "chat", "extended", "agent", parent=first, text="right"),
            AgentCall(last, 1, "chat", "extended", "agent", parent=[left, right][child]),
        )
        record = AgentRecord(calls, **counts)  # type: ignore[arg-type]
        assert (record.timeless.replayed, record.timeless.refused) == (0, 0)
        return Trajectory(Task("e"), StopReason.TERMINATED, agent=record).digest()

    assert played([0, 1, 2, 3]) == played([0, 2, 1, 3]) == played([5, 9, 7, 8], replayed=3, refused=1)
    assert len({played([0, 1, 2, 3]), played([0, 1, 2, 3], child=1), played([0, 1, 2, 3], text="!")}) == 3


@pytest.mark.parametrize(
    ("task", "is_plain"),
    [(Task("e", 5), True), (Task("e", index=0), False), (Task("e", split="test"), False), (Task("e", params={"x": 1}), False)],
)
def test_a_task_with_nothing_but_a_seed_has_an_empty_key(task: Task, is_plain: bool) -> None:
    assert (task.key == b"") is is_plain


def test_weights_may_change_before_the_first_token_and_after_the_last() -> None:
    sampled = Tokens(ints([1]), ints([2, 3]), floats([-1, -2]), 5, ((0, 6), (1, 7), (2, 8)))
    assert sampled.runs == ((0, 1, 6), (1, 2, 7))
    with pytest.raises(ValueError, match="2 sampled ids but 1 log-probs"):
        Tokens(ints([1]), ints([2, 3]), floats([-1]))


GOOD = Turn("o", Completion("good"), 1.0, {"n": 1}, 2.0, 3.0)
LOOP: dict[str, Any] = {}
LOOP["again"] = LOOP


@pytest.mark.parametrize(
    ("wrong", "kept"),
    [
        (Turn("o", Completion("act"), 1.0, LOOP), Turn("o", Completion("act"), 1.0)),
        (Turn(5, Completion("act"), 1.0, {"n": 1}), Turn("", Completion("act"), 1.0, {"n": 1})),  # type: ignore[arg-type]
        (Turn("o", 5, 1.0, {"n": 1}), Turn("o", Completion(""), 1.0, {"n": 1})),  # type: ignore[arg-type]
        (Turn("o", Completion("act"), 1e10, {"n": 1}, 2.0, 3.0), Turn("o", Completion("act"), 0.0, {"n": 1})),
        (Turn("o", Completion("act"), 1.0, [1]), Turn("o", Completion("act"), 1.0)),  # type: ignore[arg-type]
    ],
    ids=["endless info", "observation", "completion", "reward", "info"],
)
@pytest.mark.parametrize("stop", [StopReason.TERMINATED, StopReason.DEADLINE])
def test_what_a_reader_would_refuse_is_replaced_and_the_episode_fails(wrong: Turn, kept: Turn, stop: StopReason) -> None:
    before = Failure(Boundary.INFRASTRUCTURE, Phase.ACT, "k", "m")
    line, written = line_of(Trajectory(Task("e"), stop, (GOOD, wrong), failures=(before,), attempt=2))
    assert decode_json(line, Trajectory) == written
    assert written.turns == (GOOD, kept)
    assert written.stop is (StopReason.DEADLINE if stop.failed else StopReason.ERROR)
    assert written.failures[0] == before
    added = written.failures[1]
    assert (added.boundary, added.phase, added.attempt) == (Boundary.ENV, Phase.STEP, 2)


def test_an_episode_that_cannot_be_kept_at_all_is_still_accounted_for() -> None:
    wrong: Any = 5
    played = Trajectory(Task("e", 3), StopReason.TERMINATED, (GOOD,), player=wrong, seed=1, group=2, member=3, seconds=4.0)
    line, written = line_of(played)
    assert decode_json(line, Trajectory) == written
    assert (written.task, written.stop, written.turns) == (Task("e", 3), StopReason.ERROR, ())
    assert (written.seed, written.group, written.member, written.seconds) == (1, 2, 3, 4.0)
    with pytest.raises(SchemaError, match="cannot be written"):
        line_of(Trajectory(wrong, StopReason.TERMINATED))


@pytest.mark.parametrize(
    ("reward", "stop"), [(1e9, StopReason.TERMINATED), (-1e9, StopReason.TERMINATED), (1e9 + 0.5, StopReason.ERROR)]
)
def test_a_reward_is_at_most_a_billion(reward: float, stop: StopReason) -> None:
    assert line_of(Trajectory(Task("e"), StopReason.TERMINATED, (Turn("o", Completion("a"), reward),)))[1].stop is stop
