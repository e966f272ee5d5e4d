import contextlib
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.grading.decoding import decode
from palestra.grading.values import BASES, BadValue, Node, expression, same, tree_of
from palestra.sandbox.inside.values import encode_value, read_value

_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers()
_others = (
    st.fractions()
    | st.decimals()
    | st.binary(max_size=5).map(bytearray)
    | st.builds(range, st.integers(), st.integers(), st.integers(1, 9))
)
_keys = st.booleans() | st.integers() | st.text(max_size=5)
_values = st.recursive(
    _scalars | _others,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(_keys, inner, max_size=3)
        | st.sets(_keys, max_size=3)
        | st.frozensets(_keys, max_size=3)
        | st.dictionaries(_keys, inner, max_size=3).map(OrderedDict)
        | st.dictionaries(_keys, inner, max_size=3).map(partial(defaultdict, list))
        | st.dictionaries(_keys, st.integers(), max_size=3).map(Counter)
        | st.lists(inner, max_size=3).map(deque)
    ),
    max_leaves=8,
)


def _encode(value: object) -> bytes:
    return encode_value(value).encode()


@given(_values)
def test_a_value_comes_out_of_a_box_as_it_went_in(value: Any) -> None:
    assert same(tree_of(value), decode(_encode(value)))


@given(_values)
def test_the_source_of_a_value_is_the_value(value: Any) -> None:
    again = read_value(expression(tree_of(value)))
    assert same(tree_of(value), tree_of(again))


@given(_values, _values)
def test_sameness_is_symmetric_and_strict(one: Any, other: Any) -> None:
    assert same(tree_of(one), tree_of(other)) is same(tree_of(other), tree_of(one))
    if same(tree_of(one), tree_of(other)):
        assert BASES.get(type(one).__name__, type(one)) == BASES.get(type(other).__name__, type(other))


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
        b'{"Fraction":["1","0"]}',
        b'{"Fraction":["1","-2"]}',
        b'{"Decimal":"x"}',
        b'{"Decimal":"' + b"9" * 2000 + b'"}',
        b'{"range":["1"]}',
        b'{"range":["1","2","zz"]}',
        b'{"defaultdict":["exec",[]]}',
        b'{"defaultdict":["list",[1]]}',
        b'{"namedtuple":[["x"],[]]}',
        b'{"namedtuple":[["x","x"],[null,null]]}',
        b'{"namedtuple":[["x) or exit("],[null]]}',
        b'{"namedtuple":[["_x"],[null]]}',
        b'{"Counter":[null]}',
        b"[[]" + b",[]" * 300_000 + b"]",
        b"[" * 100_000,
        b"[" * 260 + b"]" * 260,
        b'{"tuple":[' * 260 + b"]}" * 260,
    ],
)
def test_forged_values_are_refused(data: bytes) -> None:
    with pytest.raises(BadValue):
        decode(data)


def test_without_a_tolerance_floats_are_exact() -> None:
    assert not same(0.1 + 0.2, 0.3)


def test_keys_that_collide_cost_nothing() -> None:
    colliding = b'{"set":[%s]}' % b",".join(b'{"int":"%x"}' % (n * (2**61 - 1)) for n in range(20_000))
    tree = decode(colliding)
    assert isinstance(tree, Node)
    assert same(tree, tree)


def test_only_plain_values_of_ours_become_trees() -> None:
    class Lie(int):
        pass

    for value in (Lie(1), object(), [object()], {"a": pytest}):
        with pytest.raises(BadValue):
            tree_of(value)


INFINITE = float("inf")


@pytest.mark.parametrize(
    ("one", "other", "equal", "leniently"),
    [
        ({1.0, INFINITE, 0.1 + 0.2}, {0.3, 1.0, INFINITE}, True, True),
        ({1.0, INFINITE}, {1.0, -INFINITE}, False, False),
        ({(1, 0.3), (2, 0.5)}, {(2, 0.5), (1, 0.1 + 0.2)}, True, True),
        ({(1, 0.3), (2, 0.5)}, {(2, 0.3), (1, 0.5)}, False, False),
        ({(1, 2), (3, 4)}, {(1.0, 2), (3, 4.0)}, False, True),
        ({(1, 2), (3, 4)}, {(1, 4), (3, 2)}, False, False),
        ({range(0, 10, 3)}, {range(0, 11, 3)}, True, True),
        ({range(0, 10, 3)}, {range(0, 10, 2)}, False, False),
        ({range(0), 1}, {range(5, 5), 1}, True, True),
        ({range(1)}, {range(1, 2)}, False, False),
        ({1 + 0.3j, 2.0}, {2.0, 1 + (0.1 + 0.2) * 1j}, True, True),
        ({Decimal("1.0"), "x"}, {Decimal("1.00"), "x"}, True, True),
        ({Decimal("1.0"), "x"}, {Decimal("1.1"), "x"}, False, False),
    ],
)
def test_unordered_items_are_paired_by_what_they_are(one: Any, other: Any, equal: bool, leniently: bool) -> None:
    trees = tree_of(one), tree_of(other)
    assert same(*trees, tolerance=1e-9) is equal
    assert same(*trees, tolerance=1e-9, lenient=True) is leniently


_huge = st.builds(lambda base, power: base * 10**power, st.integers(-9, 9), st.sampled_from([0, 15, 308, 309, 400, 4300, 5000]))
_awkward = (
    _huge
    | st.floats()
    | st.builds(Fraction, _huge, st.sampled_from([1, 3, 7, 10**200 + 1]))
    | st.decimals()
    | st.dictionaries(_huge | st.floats(allow_nan=False), _huge, max_size=2)
)


@given(_awkward, _awkward, st.booleans())
def test_numbers_of_any_size_can_be_compared(one: Any, other: Any, lenient: bool) -> None:
    assert same(tree_of(one), tree_of(other), tolerance=1e-9, lenient=lenient) in (True, False)
    assert same(tree_of(one), tree_of(one), tolerance=1e-9, lenient=lenient) or one != one
