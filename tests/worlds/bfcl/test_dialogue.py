"""BFCL's tasks: the oracle, the leaderboard's own verdict, what ends a turn, held-back functions, hostile calls."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.suite.tool_worlds import oracle_plays
from tests.worlds.bfcl.differential import disagreements

from palestra.errors import MissingExtra, SchemaError
from palestra.registry import list_envs, make
from palestra.trajectory import StopReason, Task, ToolCall
from palestra.trajectory.calls import format_call
from palestra.worlds.bfcl.apis import Apis
from palestra.worlds.bfcl.dialogue import MESSAGES_PER_TURN
from palestra.worlds.bfcl.package import gold_call, read_tasks

IDS = [known.id for known in list_envs("tools:bfcl-*")]
BASE = "tools:bfcl-base"


@pytest.mark.parametrize("id", IDS)
@pytest.mark.slow
def test_the_gold_calls_solve_every_task(id: str) -> None:
    assert oracle_plays(id, range(200)) == (200, [])


@pytest.mark.slow
def test_the_verdict_is_that_of_the_leaderboard() -> None:
    differing, right = disagreements(200, 1)  # 2,000 in benchmarks/worlds_bfcl.py
    assert differing == []
    assert 30 < right < 170  # mistakes that matter and mistakes that do not


def test_the_state_counts_and_not_the_words() -> None:
    with make(BASE) as env:
        env.reset(task=Task(BASE, 0, index=3))
        gold = env.oracle()
        assert "tool_response" in str(env.step(gold).observation)
        step = env.step("I have failed you.")
        assert not step.terminated
        assert str(step.observation).startswith("User: ")
        wrong = env.step("I have copied all files into backup_tests.")
        assert wrong.terminated
        assert wrong.reward == 0
        assert wrong.info == {"turns_passed": 1, "turns": 2, "calls": 1, "success": False}


def test_a_function_that_is_held_back_cannot_be_called_before_its_turn() -> None:
    id = "tools:bfcl-miss-func"
    with make(id) as env:
        first, info = env.reset(task=Task(id, 0, index=3))
        find = format_call(ToolCall("find", {"path": ".", "name": "test"}))
        assert '"name":"find"' not in str(first)
        assert "find" not in {schema["name"] for schema in info["tools"]}
        assert "there is no such function" in str(env.step(find).observation)
        later = env.step("I have no function that finds files.")
        assert '"name":"find"' in str(later.observation)
        assert "find" in {schema["name"] for schema in later.info["tools"]}
        assert "matches" in str(env.step(find).observation)


@pytest.mark.parametrize(
    "call",
    [
        ToolCall("power", {"base": 9, "exponent": 10**12}),
        ToolCall("square_root", {"number": 2, "precision": 10**9}),
        ToolCall("logarithm", {"value": 3, "base": 2, "precision": 10**9}),
        ToolCall("round_number", {"number": 5, "decimal_places": -(10**9)}),
        ToolCall("multiply", {"a": 10**3000, "b": 10**3000}),
    ],
)
def test_costly_arithmetic_is_refused(call: ToolCall) -> None:
    with make(BASE) as env:
        index = next(i for i, row in enumerate(read_tasks("base").rows) if "MathAPI" in row["involved_classes"])
        env.reset(task=Task(BASE, 0, index=index))
        assert 'status="error"' in str(env.step(format_call(call)).observation)


METHODS = {"f": lambda a, b=1: None}


@given(st.text(max_size=80) | st.builds("f({})".format, st.text(max_size=40)))
def test_a_gold_call_is_read_or_refused_and_never_run(written: str) -> None:
    try:
        call = gold_call(written, METHODS)
    except SchemaError:
        return
    assert call.name == "f"


@pytest.mark.parametrize(
    "written", ["f(__import__('os').getcwd())", "f(a=g(1))", "f.x(1)", "g(1)", "f(*[1])", "f(1, 2, 3)", "f"]
)
def test_anything_but_literals_is_refused(written: str) -> None:
    with pytest.raises(SchemaError):
        gold_call(written, METHODS)


def api(name: str) -> Apis:
    row = next(row for row in read_tasks("base").rows if name in row["involved_classes"])
    return Apis(row)


def test_a_tree_that_copies_made_huge_is_not_walked() -> None:
    files = api("GorillaFileSystem")
    answers = []
    for number in range(60):  # each folder holds the one before it twice
        here, next_ = f"n{number}", f"n{number + 1}"
        files.call(ToolCall("mkdir", {"dir_name": here}))
        files.call(ToolCall("mkdir", {"dir_name": next_}))
        files.call(ToolCall("cp", {"source": here, "destination": next_}))
        files.call(ToolCall("mv", {"source": here, "destination": f"m{number}"}))
        files.call(ToolCall("cp", {"source": f"m{number}", "destination": next_}))
        answers.append(files.call(ToolCall("find", {})))
    assert answers[0].ok
    assert answers[-1].text == "Error during execution: the file system has more than 10000 paths"
    assert not files.call(ToolCall("cp", {"source": "a", "destination": "c"})).ok
    assert files.call(ToolCall("pwd", {})).ok
    assert any(change.after == "…" for change in files.changed())


def test_without_the_data_the_message_says_what_to_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PALESTRA_DATA", str(tmp_path))
    with pytest.raises(MissingExtra, match='"tools:bfcl-base" needs the data of bfcl: palestra prefetch bfcl'):
        make(BASE)


def test_a_turn_has_a_limited_number_of_messages() -> None:
    with make(BASE) as env:
        env.reset(task=Task(BASE, 0, index=0))
        for _ in range(MESSAGES_PER_TURN):
            assert not env.step(format_call(ToolCall("pwd", {}))).truncated
        last = env.step(format_call(ToolCall("pwd", {})))
        assert last.truncated
        assert last.info["stop_reason"] == StopReason.TURN_LIMIT
        assert last.info["success"] is False


@pytest.mark.parametrize(("born", "adult"), [("2006-09-01", True), ("2006-09-02", False)])
def test_the_age_of_a_traveler_does_not_depend_on_the_clock(born: str, adult: bool) -> None:
    travel = api("TravelAPI")
    first, last = (travel._objects["TravelAPI"].__dict__[f"user_{part}_name"] for part in ("first", "last"))
    given = {"first_name": first, "last_name": last, "date_of_birth": born, "passport_number": "US1"}
    assert (json.loads(travel.call(ToolCall("verify_traveler_information", given)).text)["verification_status"]) is adult
