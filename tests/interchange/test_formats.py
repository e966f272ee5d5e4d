"""What goes out comes back: all of it through Parquet, what each format has a place for through the others."""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra import Completion, Image, Message, StopReason, Task, Text, Trajectory, Turn, collect
from palestra.errors import Boundary, SchemaError, UsageError
from palestra.foundation.encoding import floats, ints
from palestra.interchange import (
    LogHeader,
    inspect_name,
    messages_of,
    read_atif,
    read_inspect,
    read_openai,
    read_parquet,
    write_atif,
    write_inspect,
    write_openai,
    write_parquet,
)
from palestra.trajectory import LARGEST_REWARD, Failure, Finish, Phase, Segment, Span, ToolCall, ToolResult, Usage
from palestra.trajectory.calls import format_call, format_result

pytest.importorskip("pyarrow")

ADDED = format_result("add", ToolResult("2"), "c1")
PICTURE = (Text("look: "), Image(b"\x89PNG\r\n", "image/png"))
SEGMENT = Segment(ints(range(10)), (Span(2, 4, 0, 7), Span(6, 9, 1, 8)), floats([-0.5, -1.25, -0.1, -2.0, float("-inf")]))


def told(trajectory: Trajectory) -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in messages_of(trajectory)]


def exact(trajectory: Trajectory) -> tuple[Trajectory, list[Any]]:
    """All of it, in a form that ``==`` can compare: arrays apart."""
    arrays = [(segment.ids.tolist(), segment.spans, segment.logprobs.tolist()) for segment in trajectory.segments]
    return msgspec.structs.replace(trajectory, segments=()), arrays


def rich() -> Trajectory:
    """An episode with everything that one can have."""
    usage = Usage(10, 3, 0.02)
    turns = (
        Turn(PICTURE, Completion("a", reasoning="hm", usage=usage), 0.25, {"deep": [1, {"x": None}]}, 0.5, 0.25),
        Turn("é \u2028 next", Completion("b\n", Finish.LENGTH, usage=usage), -0.1, {"success": False}, 1.0, 2.0),
    )
    failure = Failure(Boundary.INFRASTRUCTURE, Phase.BOOT, "WorkerDied", "it died", detail="trace")
    return Trajectory(
        Task("game:X-v0", 2**53 - 1, 3, "test", {"n": 1}),
        StopReason.LENGTH_CUT,
        turns,
        (SEGMENT,),
        "over",
        {"system": "be brief"},
        (failure,),
        policy="model",
        seed=5,
        group=2,
        member=1,
        attempt=1,
        seconds=1.5,
    )


def failed() -> Trajectory:
    return Trajectory(Task("game:X-v0", 1), StopReason.ERROR, failures=(Failure(Boundary.ENV, Phase.RESET, "E", "no"),))


@pytest.fixture(scope="module")
def played() -> list[Trajectory]:
    games = ["game:GuessTheNumber-v0-easy", "game:Sudoku-v0-easy", "game:Mastermind-v0-easy"]
    return [*collect(games, "random", n=9, group_size=2, progress=False), rich(), failed()]


# ----------------------------------------------------------------------------------------------------------------- parquet


def test_parquet_keeps_everything(played: list[Trajectory], tmp_path: Path) -> None:
    file = tmp_path / "run.parquet"
    assert write_parquet(played, file) == len(played)
    assert [exact(one) for one in read_parquet(file)] == [exact(one) for one in played]


_texts = st.text(st.characters(codec="utf-8"), max_size=20)
_floats = st.floats(-LARGEST_REWARD, LARGEST_REWARD, width=32)
_infos = st.dictionaries(
    _texts, st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | _texts, st.lists), max_size=3
)
_turns = st.builds(
    Turn,
    _texts | st.tuples(st.builds(Text, _texts), st.builds(Image, st.binary(max_size=9))),
    st.builds(Completion, _texts, st.sampled_from(Finish), _texts, usage=st.none() | st.builds(Usage, st.integers(0, 9))),
    _floats,
    _infos,
    _floats,
)
_trajectories = st.builds(
    Trajectory,
    st.builds(Task, _texts, st.integers(0, 2**53), st.none() | st.integers(0, 99), _texts, _infos),
    st.sampled_from(StopReason),
    st.lists(_turns, max_size=3).map(tuple),
    st.just(()) | st.just((SEGMENT, SEGMENT)),
    _texts,
    _infos,
    seed=st.integers(0, 2**53),
    group=st.integers(0, 99),
)


@pytest.mark.gate
@settings(max_examples=40, deadline=None)
@given(st.lists(_trajectories, max_size=4))
@pytest.mark.slow
def test_parquet_keeps_whatever_there_is(tmp_path_factory: pytest.TempPathFactory, found: list[Trajectory]) -> None:
    file = tmp_path_factory.mktemp("parquet") / "run.parquet"
    write_parquet(found, file)
    assert [exact(one) for one in read_parquet(file)] == [exact(one) for one in found]


def test_columns_can_be_queried(played: list[Trajectory], tmp_path: Path) -> None:
    import pyarrow.parquet as parquet

    write_parquet(played, tmp_path / "run.parquet")
    table = parquet.read_table(tmp_path / "run.parquet", columns=["env", "reward", "success"])
    assert table.column("reward").to_pylist() == [one.reward for one in played]
    assert table.column("env").to_pylist() == [one.task.env for one in played]


# ------------------------------------------------------------------------------------------------------------- the dialogues


def test_openai_has_the_conversation_and_leaves_out_what_failed(played: list[Trajectory], tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl"
    assert write_openai(played, file) == len(played) - 1
    lines = [json.loads(line) for line in file.read_bytes().splitlines()]
    assert all(line["messages"][-1]["role"] == "assistant" and set(line) == {"messages"} for line in lines)
    back = list(read_openai(file))
    good = [one for one in played if not one.stop.failed]
    assert [told(one) for one in back] == [[(m.role, m.content) for m in messages_of(o, final=False)] for o in good]
    assert {one.reward for one in back} == {None}, "the format has no scores, and none is a zero"


def test_openai_writes_native_calls_where_tools_were_lent(tmp_path: Path) -> None:
    schema = {"name": "add", "description": "adds", "parameters": {"type": "object"}}
    call = format_call(ToolCall("add", {"a": 1}, "c1"))
    turns = (Turn("what is 1 + 1?", Completion(call), info={"role": "tool"}), Turn(ADDED, Completion("two")))
    one = Trajectory(Task("x:y"), StopReason.TERMINATED, turns, info={"tools": [schema]})
    write_openai([one], tmp_path / "x.jsonl")
    line = json.loads((tmp_path / "x.jsonl").read_text())
    assert line["tools"] == [{"type": "function", "function": schema}]
    assert [message["role"] for message in line["messages"]] == ["user", "assistant", "tool", "assistant"]
    assert line["messages"][1]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a":1}'}
    assert line["messages"][2] == {"role": "tool", "tool_call_id": "c1", "content": "2"}
    (back,) = read_openai(tmp_path / "x.jsonl")
    assert [turn.action for turn in back.turns] == [call, "two"]
    assert back.turns[1].observation == ADDED
    assert told(back) == told(one)


def tool_episode() -> Trajectory:
    """Two calls in one message, their results, an observation of the environment's own, and a last result."""
    calls = format_call(ToolCall("add", {"a": 1}, "c1")) + "\n" + format_call(ToolCall("add", {"a": 2}, "c2"))
    both = f"{ADDED}\n{format_result('add', ToolResult('3'), 'c2')}"
    turns = (
        Turn("go", Completion(calls), info={"role": "tool", "tools": {"totals": {"ok": 2}}}),
        Turn(both, Completion("a move")),
        Turn("moved", Completion(format_call(ToolCall("add", {"a": 1}, "c1"))), info={"role": "tool"}),
    )
    tools = [{"name": "add", "description": "adds", "parameters": {"type": "object"}}]
    return Trajectory(Task("x:y"), StopReason.TURN_LIMIT, turns, final_observation=ADDED, info={"tools": tools}, policy="m")


ROLES = ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]


def test_what_tools_answered_has_their_role_in_every_format(tmp_path: Path) -> None:
    one = tool_episode()
    assert [role for role, _ in told(one)] == ROLES
    write_inspect([one], tmp_path / "a.json", LogHeader(task="x"))
    write_atif([one], tmp_path / "atif")
    write_parquet([one], tmp_path / "a.parquet")
    write_openai([one], tmp_path / "a.jsonl")
    for back in (read_inspect(tmp_path / "a.json"), read_atif(tmp_path / "atif"), read_parquet(tmp_path / "a.parquet")):
        assert [told(found) for found in back] == [told(one)]
    logged = json.loads((tmp_path / "a.json").read_text())["samples"][0]["messages"]
    assert [message["role"] for message in logged] == ROLES
    (read,) = read_openai(tmp_path / "a.jsonl")
    assert told(read) == told(one)[:-1], "an example for fine-tuning ends with what the policy wrote"


def without_tokens(trajectory: Trajectory, **changes: Any) -> Trajectory:
    still = tuple(msgspec.structs.replace(turn, act_seconds=0.0, env_seconds=0.0) for turn in trajectory.turns)
    return msgspec.structs.replace(trajectory, turns=still, segments=(), **changes)


def test_atif_keeps_all_but_tokens_and_clock(played: list[Trajectory], tmp_path: Path) -> None:
    assert write_atif(played, tmp_path / "atif") == len(played) - 1
    expected = [without_tokens(one, seconds=0.0, failures=()) for one in played if one.turns]
    assert list(read_atif(tmp_path / "atif")) == [
        msgspec.structs.replace(one, policy=one.policy or "unknown") for one in expected
    ]


def test_atif_has_the_sampled_tokens(tmp_path: Path) -> None:
    write_atif([rich()], tmp_path / "atif")
    document = json.loads((tmp_path / "atif" / "000000.json").read_text())
    metrics = [step["metrics"] for step in document["steps"] if step["source"] == "agent"]
    assert [found["completion_token_ids"] for found in metrics] == [[2, 3], [6, 7, 8]]
    assert metrics[0]["logprobs"] == [-0.5, -1.25]


def test_atif_reads_no_file_but_its_own(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "in").mkdir()
    image = {"type": "image", "source": {"media_type": "image/png", "path": "../secret.png"}}
    steps = [{"step_id": 1, "source": "user", "message": [image]}, {"step_id": 2, "source": "agent", "message": "hi"}]
    document = {"schema_version": "ATIF-v1.5", "session_id": "s", "agent": {"name": "a", "version": "1"}, "steps": steps}
    (tmp_path / "in" / "x.json").write_text(json.dumps(document))
    (found,) = read_atif(tmp_path / "in")
    assert found.turns[0].observation == (Text("[image at ../secret.png]"),)
    assert found.reward is None


def test_inspect_keeps_conversation_and_scores(played: list[Trajectory], tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    write_inspect(played, file, LogHeader(task="t"))
    back = list(read_inspect(file))
    assert [told(one) for one in back] == [told(one) for one in played]
    assert [(one.reward, one.success, one.stop, one.task, one.member) for one in back] == [
        (one.reward, one.success, one.stop, one.task, one.member) for one in played
    ]


def test_a_log_of_somebody_else(tmp_path: Path) -> None:
    sample: dict[str, Any] = {"id": 1, "epoch": 2, "input": "q", "target": "a"}
    sample["messages"] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    sample["messages"] += [{"role": "assistant", "content": "a", "tool_calls": [{"id": "c", "function": "f", "arguments": {}}]}]
    scores = [{"match": {"value": "C"}}, {"match": {"value": 0.25}}, None]
    samples = [{**sample, "id": number, "scores": score} for number, score in enumerate(scores)]
    log = {"version": 2, "eval": {"task": "arc", "model": "m/x"}, "samples": samples}
    (tmp_path / "log.json").write_text(json.dumps(log))
    found = list(read_inspect(tmp_path / "log.json"))
    assert [one.reward for one in found] == [1.0, 0.25, None]
    assert found[0].turns[0].action == "a\n" + format_call(ToolCall("f", {}, "c"))
    assert (found[0].member, found[0].policy, found[0].info) == (1, "m/x", {"system": "s"})


# ---------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("column", ["agent", "seconds"])
def test_a_parquet_file_without_a_column_of_its_schema_is_refused(
    column: str, played: list[Trajectory], tmp_path: Path
) -> None:
    import pyarrow.parquet as parquet

    write_parquet(played, tmp_path / "run.parquet")
    parquet.write_table(parquet.read_table(tmp_path / "run.parquet").drop_columns([column]), tmp_path / "less.parquet")
    with pytest.raises(SchemaError, match=f"a row is not a trajectory: KeyError: '{column}'"):
        list(read_parquet(tmp_path / "less.parquet"))


@pytest.mark.parametrize("read", [read_openai, read_inspect, read_atif, read_parquet])
@pytest.mark.parametrize(
    "content", [b"{}\n", b"not this\n", b'{"messages": [{"role": "user", "content": "x"}]}\n', b"\xff\xfe\n"]
)
def test_what_is_not_the_format_is_said(read: Any, content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(SchemaError, match=r"x\.json"):
        list(read(tmp_path / "x.json"))


def test_a_folder_with_something_in_it_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(UsageError, match="not empty"):
        write_atif([rich()], tmp_path)


def test_a_conversation_becomes_turns() -> None:
    from palestra.interchange.dialogue import trajectory_of

    said = [
        Message("assistant", "hello"),
        Message("user", "a"),
        Message("tool", "b"),
        Message("assistant", "c"),
        Message("user", "d"),
    ]
    found = trajectory_of(said, Task("x:y"))
    assert [(turn.observation, turn.action) for turn in found.turns] == [("", "hello"), ("a\n\nb", "c")]
    assert found.final_observation == "d"


@given(st.text(min_size=1, max_size=40), st.datetimes(min_value=datetime(2000, 1, 1), timezones=st.just(UTC)))
def test_a_log_has_a_name_that_inspect_lists(task: str, created: datetime) -> None:
    header = LogHeader(task=task, created=created)
    name = inspect_name(header)
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}\+00-00_[A-Za-z0-9.-]+_[0-9a-f]{22}\.json", name)
    assert inspect_name(header) == name
