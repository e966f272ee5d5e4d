import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.suite.reasoning.formulas import is_formula

GOOD = [
    *("24", "(1 + 2)*8", "-3*x**2 + x/4", "exp(-x)*sin(2*x) + C", "x**(1/2)", "2**x", "x**-3", "1.5*X"),
    *("sqrt(x)*log(x)", "pi*x", "(x**2 + 1)**(3/2)"),
]
BAD = [
    "",
    "__import__('os').system('true')",
    "().__class__",
    "x.y",
    "x[0]",
    "[1, 2]",
    "lambda: 0",
    "'a'*9",
    "print(1)",
    "exit()",
    "sin(x, y)",
    "sin(x, y=1)",
    "9**9**9",
    "9**999999999",
    "(9**100)**100",
    "9**(99*99*99)",
    "2**exp(99)",
    "1/0**(1/0)",
    "x if x else x",
    "x == 1",
    "True",
    "1e999",
    "10**18 + 1000000000000000000",
    "(" * 500 + "1" + ")" * 500,
    "1+" * 5000 + "1",
    "import os",
    "x := 3",
    "f'{x}'",
]


@pytest.mark.parametrize("text", GOOD)
def test_formulas_pass(text: str) -> None:
    assert is_formula(text)


@pytest.mark.parametrize("text", BAD)
def test_whatever_is_more_than_a_formula_does_not(text: str) -> None:
    assert not is_formula(text)


@given(st.text(st.sampled_from("0123456789xyC+-*/(). **sincoexp_[]'\""), max_size=80))
def test_no_text_breaks_the_reader_and_none_with_a_dunder_a_quote_or_an_index_passes(text: str) -> None:
    if is_formula(text):
        assert not any(mark in text for mark in ("_", "'", '"', "["))


@pytest.mark.parametrize("text", ["9" * 1_000_000, "(" * 100_000, "-" * 100_000 + "1", "x**" * 600 + "x"])
def test_hostile_texts_cost_little(text: str) -> None:
    began = time.process_time()
    assert not is_formula(text)
    assert time.process_time() - began < 3
