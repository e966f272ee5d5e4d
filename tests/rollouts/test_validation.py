import datetime
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra import Completion, Env, make_vec
from palestra.errors import EnvError, PolicyError
from palestra.foundation.encoding import Floats, decode_json, encode_json, floats, ints
from palestra.rollouts.validation import (
    DEEPEST,
    MOST_ITEMS,
    checked_reset,
    checked_step,
    kept_completion,
    kept_played,
    kept_reset,
    kept_step,
    kept_tools,
)
from palestra.trajectory import (
    LARGEST_REWARD,
    AgentCall,
    AgentRecord,
    Finish,
    Image,
    Message,
    PlayedRecord,
    Segment,
    Span,
    StopReason,
    Task,
    Text,
    Tokens,
    Usage,
)
from tests.rollouts.hostile import endless, multiplied, nested

ANYTHING = st.none() | st.booleans() | st.floats() | st.text() | st.lists(st.integers()) | st.dictionaries(st.text(), st.text())


@given(st.tuples(ANYTHING, ANYTHING) | ANYTHING)
def test_a_reset_is_an_observation_and_a_dict_or_an_env_error(result: Any) -> None:
    try:
        observation, info = checked_reset(result)
    except EnvError:
        return
    assert isinstance(observation, str)
    assert isinstance(info, dict)


@given(st.tuples(ANYTHING, ANYTHING, ANYTHING, ANYTHING, ANYTHING) | ANYTHING)
def test_a_step_is_five_values_within_bounds_or_an_env_error(result: Any) -> None:
    try:
        step = checked_step(result)
    except EnvError:
        return
    assert isinstance(step.observation, str)
    assert abs(step.reward) <= LARGEST_REWARD
    assert isinstance(step.info, dict)


def test_what_keeps_the_contract_passes_and_info_is_a_copy() -> None:
    info = {"a": 1}
    step = checked_step(((Text("x"),), 1, 0, 1, info))
    assert list(step) == [(Text("x"),), 1.0, False, True, {"a": 1}]
    assert step.info is not info


class Careless(Env):
    """Returns a number where an observation is due."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return 7, {}  # type: ignore[return-value]

    def step(self, action: str) -> Any:
        raise AssertionError("never reached")


def test_a_vector_checks_resets() -> None:
    with make_vec(f"{__name__}:Careless", 2) as vector:
        _, infos = vector.reset(seed=0)
    assert all("an observation is text" in info["failure"].message for info in infos)


# what a record keeps


def refuse(*_: object, **__: object) -> Any:
    raise RuntimeError("mine")


class OwnStr(str):
    encode = refuse


class OwnDict(dict[str, Any]):
    __iter__ = keys = items = refuse


class OwnList(list[Any]):
    __iter__ = refuse


@dataclass(frozen=True)
class Pair:
    left: Any
    right: Any


class Held(Enum):
    PAIR = (1, 2)


class Both(msgspec.Struct, frozen=True):
    left: Any
    right: Any


def shared(kind: Callable[[Any, Any], Any]) -> Any:
    """A graph of 60 objects that reaches its first one in 2**60 ways."""
    graph: Any = 0
    for _ in range(60):
        graph = kind(graph, graph)
    return graph


SHARED: dict[str, Any] = {
    "dataclasses": lambda: shared(Pair),
    "structs": lambda: shared(Both),
    "frozen sets": lambda: shared(lambda left, right: frozenset({(left, 1), (right, 2)})),
    "arrays of objects": lambda: shared(lambda left, right: np.array([Pair(left, right), None])),
    "a large set": lambda: set(range(MOST_ITEMS + 1)),
    "a large array of text": lambda: np.array(["a"] * (MOST_ITEMS + 1)),
}


@pytest.mark.parametrize("name", SHARED)
def test_objects_that_share_their_parts_are_counted_before_they_are_written(name: str) -> None:
    with pytest.raises(EnvError, match="info cannot be written"):  # written out, each would fill the memory first
        kept_reset(("", {"value": SHARED[name]()}))


def test_a_record_shares_nothing_with_the_environment() -> None:
    row = [1, (2, [3])]
    array = np.arange(3)
    kept = kept_step(("", 0.0, False, False, {"row": row, "array": array}))[4]
    row.append(4)
    row[1][1].append(5)  # type: ignore[index]
    array += 1
    assert kept["row"] == [1, (2, [3])]
    assert kept["array"].tolist() == [0, 1, 2]
    _, info = kept_reset(("", {"row": row}))
    row.clear()
    assert len(info["row"]) == 3


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (OwnStr("said"), "said"),
        (OwnDict(a=OwnList([1])), {"a": [1]}),
        ("\ud800", "\ufffd"),
        ({"\ud800": 1, 2: 3, None: 4}, {"\ufffd": 1, "2": 3, "None": 4}),
        (2**70, {"$unserialisable": "builtins.int"}),
        (np.float32(0.5), 0.5),
        (np.float64(0.5), 0.5),
        (np.array(["a", None]), ["a", None]),
        ({1}, [1]),
        (frozenset({"b", "a"}), ["a", "b"]),
        ({1, "a"}, ["a", 1]),
        (Pair(1, Pair(2, None)), {"left": 1, "right": {"left": 2, "right": None}}),
        (Message("user", "hi"), {"role": "user", "content": "hi", "reasoning": ""}),
        (Held.PAIR, (1, 2)),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (np.array(["2026-01-02"], "M8[D]"), ["2026-01-02"]),
        (np.longdouble(0.5), {"$unserialisable": "numpy.longdouble"}),
        (StopReason.TRUNCATED, "truncated"),
        (b"x", b"x"),
        (bytearray(b"x"), b"x"),
        (1j, {"$unserialisable": "builtins.complex"}),
        (nested(DEEPEST - 2), nested(DEEPEST - 2)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_info_is_kept_as_plain_data_that_a_file_holds(value: Any, kept: Any) -> None:
    info = kept_step(("", 0.0, False, False, OwnDict(value=value)))[4]
    assert info == {"value": kept}
    assert type(info["value"]) is type(kept)
    decode_json(encode_json(info), dict)


NO_STEPS: list[tuple[Any, str]] = [
    (("", 1.0, True, False), r"step\(\) must return five values"),
    (("", 1.0, True, False, [("a", 1)]), r"step\(\) must return a dict as info, got a list"),
    (("", "1.0", True, False, {}), "a reward must be a number"),
    (("", 10**400, True, False, {}), "a reward must be a number"),
    (("", 0.0, "false", False, {}), "must be True or False"),
    (("", 0.0, None, False, {}), "must be True or False"),
    ((b"x", 0.0, True, False, {}), "an observation is text"),
    (((Text(5),), 0.0, True, False, {}), "an observation is text"),  # type: ignore[arg-type]
    (((Image("x"),), 0.0, True, False, {}), "an observation is text"),  # type: ignore[arg-type]
]
NOT_KEPT: list[tuple[Any, str]] = [
    (("", 0.0, True, False, {"success": "false"}), "info\\['success'\\] must be"),
    (("", 0.0, True, False, {"success": float("nan")}), "info\\['success'\\] must be"),
    (("", 0.0, True, False, {"success": [0]}), "info\\['success'\\] must be"),
    (("", 0.0, True, False, endless()), "contains itself"),
    (("", 0.0, True, False, nested(DEEPEST + 1)), "contains itself"),
    (("", 0.0, True, False, {"rows": multiplied()}), "holds more than"),
]


@pytest.mark.parametrize(
    ("check", "step", "problem"),
    [(check, *row) for check, rows in ((checked_step, NO_STEPS), (kept_step, NO_STEPS + NOT_KEPT)) for row in rows],
)
def test_what_cannot_be_kept_is_the_environments_failure(check: Any, step: Any, problem: str) -> None:
    with pytest.raises(EnvError, match=problem):
        check(step)


def test_the_policy_gets_its_own_copy_of_the_tools() -> None:
    info = {"tools": [{"name": "search"}]}
    offered = kept_tools(info)
    assert offered == info["tools"]
    offered[0]["name"] = "other"
    assert info == {"tools": [{"name": "search"}]}
    assert kept_tools({"tools": {"search": 3}}) is None
    with pytest.raises(EnvError, match="must be a list of schemas"):
        kept_tools({"tools": [1]})


TOKENS = Tokens(ints([1]), ints([2]), floats([-0.5]))


def test_a_completion_that_keeps_the_contract_passes_as_it_is() -> None:
    completion = Completion("act")
    assert kept_completion(completion) is completion
    updated = Tokens(TOKENS.prompt, TOKENS.ids, TOKENS.logprobs, 3, ((0, 4),))
    full = Completion("act", Finish.LENGTH, "why", updated, (TOKENS,), Usage(1, 2, 0.5, {"429": 1}))
    assert kept_completion(full) == full


def test_a_completion_is_kept_as_plain_data() -> None:
    retries = {"429": 1}
    usage = Usage(np.int64(3), 2, 1, retries)  # type: ignore[arg-type]
    tokens = Tokens([1], [2], [-0.5])  # type: ignore[arg-type]
    kept = kept_completion(Completion(OwnStr("act"), "length", OwnStr(""), tokens, usage=usage))  # type: ignore[arg-type]
    retries["429"] = 9
    assert kept.usage == Usage(3, 2, 1.0, {"429": 1})
    assert (type(kept.text), kept.finish) == (str, Finish.LENGTH)
    assert kept.tokens is not None
    assert isinstance(kept.tokens.logprobs, Floats)


NO_COMPLETIONS: list[dict[str, Any]] = [
    {"finish": "boredom"},
    {"finish": []},
    {"reasoning": OwnStr("x"), "usage": 5},
    {"usage": Usage(dollars=float("nan"))},
    {"usage": Usage(dollars=float("inf"))},
    {"usage": Usage(dollars=-1.0)},
    {"usage": Usage(dollars="1")},  # type: ignore[arg-type]
    {"usage": Usage(completion_tokens=10**30)},
    {"usage": Usage(prompt_tokens=-5)},
    {"usage": Usage(prompt_tokens=0.5)},  # type: ignore[arg-type]
    {"usage": Usage(retries={"x": "y"})},  # type: ignore[dict-item]
    {"usage": Usage(retries={5: 1})},  # type: ignore[dict-item]
    {"usage": Usage(retries=[5])},  # type: ignore[arg-type]
    {"tokens": 5},
    {"tokens": Tokens("a", "b", "c")},  # type: ignore[arg-type]
    {"tokens": Tokens(ints([1]), ints([2]), floats([0.0]), version="new")},  # type: ignore[arg-type]
    {"notes": [TOKENS]},
    {"notes": (5,)},
]


@pytest.mark.parametrize("fields", NO_COMPLETIONS, ids=str)
def test_what_cannot_be_kept_is_the_policys_failure(fields: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=r"of a completion|of a usage|of the usage"):
        kept_completion(Completion("act", **fields))


def test_what_a_policy_records_itself_is_copied_or_refused() -> None:
    segment = Segment(ints([1, 2]), (Span(1, 2, 0),), floats([-0.5]))
    assert kept_played(None) is None
    kept = kept_played(PlayedRecord((segment,), AgentRecord(links={"start": 1})))
    assert kept is not None
    assert kept.agent == AgentRecord(links={"start": 1})
    assert kept.segments[0].ids.tolist() == [1, 2]
    call = AgentCall("one", 0, "chat", "start", "agent")  # type: ignore[arg-type]
    for wrong in (5, (), PlayedRecord(5), PlayedRecord((5,)), PlayedRecord((), AgentRecord((call,)))):  # type: ignore[arg-type]
        with pytest.raises(PolicyError, match=r"end_episode\(\)"):
            kept_played(wrong)


class Modest(list[int]):
    """A list that lies about its length."""

    def __len__(self) -> int:
        return 0


def test_the_items_of_an_info_are_counted_whatever_their_container_says() -> None:
    with pytest.raises(EnvError, match="holds more than"):
        kept_step(("", 0.0, False, False, {"list": Modest([0] * (MOST_ITEMS + 1))}))
