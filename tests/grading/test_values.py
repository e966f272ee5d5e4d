import contextlib
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.grading.values import BadValue, Node, decode, expression, same, tree_of
from palestra.sandbox import profile

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
_keys = st.booleans() | st.integers() | st.text(max_size=5)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_keys, inner, max_size=3)
        | st.sets(_keys, max_size=3)
        | st.frozensets(_keys, max_size=3)
    ),
    max_leaves=8,
)


@cache
def _runner() -> dict[str, Any]:
    """The part of the runner in the box that encodes values, out of its own source."""
    source = Path(profile.__file__).with_name("runner.py").read_text()
    start = source.index("def encode_value")
    namespace: dict[str, Any] = {}
    exec(source[start : source.index("# ---", start)], namespace)  # noqa: S102
    return namespace


def _encode(value: object) -> bytes:
    encoded: str = _runner()["encode_value"](value)
    return encoded.encode()


@given(_values)
def test_a_value_comes_out_of_a_box_as_it_went_in(value: Any) -> None:
    assert same(tree_of(value), decode(_encode(value)))


@given(_values)
def test_the_source_of_a_value_is_the_value(value: Any) -> None:
    again = eval(expression(tree_of(value)), {"nan": float("nan"), "inf": float("inf")})  # noqa: S307
    assert same(tree_of(value), tree_of(again))


@given(_values, _values)
def test_sameness_is_symmetric_and_strict(one: Any, other: Any) -> None:
    assert same(tree_of(one), tree_of(other)) is same(tree_of(other), tree_of(one))
    if same(tree_of(one), tree_of(other)):
        assert type(one) is type(other)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadValue):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1",
        b'"text"',
        b'{"int":"zz"}',
        b'{"int":"1","str":""}',
        b'{"str":"0"}',
        b'{"str":"ff"}',
        b'{"float":"x"}',
        b'{"object":[]}',
        b'{"dict":[1]}',
        b'{"dict":[[null]]}',
        b'{"complex":["1"]}',
        b'{"complex":[1,2]}',
        b"[" * 100_000,
        b"[" * 150 + b"]" * 150,
        b'{"tuple":' * 200 + b"[]" + b"}" * 200,
    ],
)
def test_forged_values_are_refused(data: bytes) -> None:
    with pytest.raises(BadValue):
        decode(data)


def test_keys_that_collide_cost_nothing() -> None:
    colliding = b'{"set":[%s]}' % b",".join(b'{"int":"%x"}' % (n * (2**61 - 1)) for n in range(20_000))
    tree = decode(colliding)
    assert isinstance(tree, Node)
    assert same(tree, tree)


def test_only_plain_values_of_ours_become_trees() -> None:
    class Lie(int):
        pass

    for value in (Lie(1), object(), [object()], {"a": profile}):
        with pytest.raises(BadValue):
            tree_of(value)


def test_tolerance_is_for_floats_only() -> None:
    assert same(0.1 + 0.2, 0.3, tolerance=1e-9)
    assert not same(0.1 + 0.2, 0.3)
    assert not same(10**12, 10**12 + 1, tolerance=1e-9)
    assert same(tree_of((1, [2.0])), tree_of([1.0, (2,)]), lenient=True)
    assert not same(tree_of((1,)), tree_of([2]), lenient=True)
