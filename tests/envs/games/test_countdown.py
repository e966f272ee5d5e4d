import ast
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palestra.envs.games.countdown import Calculation, Countdown, calculated

NUMBER = st.integers(0, 12).map(str)
EXPRESSIONS = st.recursive(
    NUMBER,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", " + ", " * "]), inner).map("".join), inner.map("({})".format)
    ),
    max_leaves=8,
)


def slow_value(node: ast.expr) -> Fraction | None:
    """The value by Python's own grammar and exact fractions; ``None`` if any division leaves a remainder."""
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int)
        return Fraction(node.value)
    assert isinstance(node, ast.BinOp)
    left, right = slow_value(node.left), slow_value(node.right)
    if left is None or right is None:
        return None
    if isinstance(node.op, ast.Div):
        return left / right if right and (left / right).denominator == 1 else None
    return left + right if isinstance(node.op, ast.Add) else left - right if isinstance(node.op, ast.Sub) else left * right


@settings(max_examples=300)
@given(EXPRESSIONS)
@pytest.mark.slow
def test_expressions_come_to_what_they_should(text: str) -> None:
    found = calculated(text)
    tree = ast.parse(text.replace("00", "0"), mode="eval").body if "00" not in text else None
    if tree is not None:
        assert found is not None
        assert found.value == slow_value(tree)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 + 2 * 3", Calculation((1, 2, 3), 7)),
        ("(1 + 2) * 3", Calculation((1, 2, 3), 9)),
        ("8 - 3 - 2", Calculation((8, 3, 2), 3)),
        ("8 / 3", Calculation((8, 3), None)),
        ("8 / (3 - 3)", Calculation((8, 3, 3), None)),
        ("2 - 5", Calculation((2, 5), -3)),
        ("", None),
        ("()", None),
        ("1 +", None),
        ("1 2", None),
        ("(1", None),
        ("1)", None),
        ("-1", None),
        ("1 ** 2", None),
        ("1 // 2", None),
        ("٣ + 1", None),
        ("1.5", None),
        ("a + 1", None),
        ("1111111111 + 1", None),
        ("__import__('os')", None),
    ],
)
def test_known_expressions(text: str, found: Calculation | None) -> None:
    assert calculated(text) == found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(3, 6))
def test_every_target_can_be_reached(seed: int, count: int) -> None:
    game = Countdown(count, 5)
    game.reset(seed=seed)
    found = calculated(game.solution)
    assert found is not None
    assert found.value == game.target == slow_value(ast.parse(game.solution, mode="eval").body)
    assert Counter(found.numbers) == Counter(game.numbers)
    assert len(game.numbers) == count
    assert game.target not in game.numbers
    assert (10 <= game.target <= 100) if count < 5 else (100 <= game.target <= 999)


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(EXPRESSIONS, min_size=1, max_size=6))
def test_moves_follow_the_rules(seed: int, texts: list[str]) -> None:
    game = Countdown(4, 5)
    game.reset(seed=seed)
    for turn, text in enumerate(texts, start=1):
        step = game.step(f"\\boxed{{{text}}}")
        found = calculated(text) if len(text) <= 120 else None
        if found is None:
            assert step.info["format_error"]
            return
        allowed = not Counter(found.numbers) - Counter(game.numbers)
        won = allowed and found.value == game.target
        assert (step.reward, step.terminated, step.truncated) == (float(won), won, not won and turn == 5)
        if won or turn == 5:
            return


def test_other_ways_to_write_signs() -> None:
    game = Countdown(3, 5)
    game.reset(seed=0)
    written = game.solution.replace("*", "\\times").replace("/", "÷").replace("-", "−")
    assert game.step(f"\\boxed{{{written}}}").info["success"]
