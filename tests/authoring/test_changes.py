"""What differs between two values, and how it is shown."""

from hypothesis import given
from hypothesis import strategies as st

from palestra.authoring.changes import Difference, changes, drawn_changes

DATA = st.recursive(
    st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=10,
)


def test_a_change_has_its_place_and_both_values() -> None:
    before = {"inbox": {"1": {"read": False}, "2": {"read": False}}, "balance": 5, "files": ["a"]}
    after = {"inbox": {"1": {"read": True}}, "balance": 5, "files": ["a", "b"]}
    assert list(changes(before, after)) == [
        Difference("inbox.1.read", "False", "True"),
        Difference("inbox.2", "{'read': False}", ""),
        Difference("files.1", "", "b"),
    ]


@given(DATA, DATA)
def test_equal_data_has_no_changes_and_other_data_has_some(one: object, other: object) -> None:
    assert list(changes(one, one)) == []
    assert bool(list(changes(one, other))) == (one != other)


def test_a_long_list_of_changes_is_cut() -> None:
    shown = drawn_changes("", [], changes({}, {str(number): "x" * 1000 for number in range(100)}))
    assert shown.count("+ x") == 40
    assert "and more" in shown
    assert len(shown) < 20_000
    assert "Nothing has changed." in drawn_changes("", [], iter(()))
