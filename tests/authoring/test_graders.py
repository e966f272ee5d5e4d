from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palestra.authoring.graders import ChoiceGrader, FunctionGrader, Grade, NumberGrader, number_in
from palestra.errors import GraderError

RIGHT, WRONG, NONE = Grade(1.0, True), Grade(0.0, False), Grade(0.0, False, format_error=True)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("42", 42),
        ("so #### 1,234", 1234),
        ("−3.5 apples", Fraction(-7, 2)),
        ("3 / 4", Fraction(3, 4)),
        ("1e6", 1_000_000),
        (".5", Fraction(1, 2)),
        ("first 1, then 2.", 2),
        ("the point (3,4)", 4),
        ("1,234,567.5", Fraction(2469135, 2)),
        ("1,00,000", 100_000),
        ("1/1,000", Fraction(1, 1000)),
        ("12,3456", 3456),
        ("1" + ",22" * 30_000, 22),
        ("none", None),
        ("9" * 5000, None),
    ],
)
def test_the_last_number_of_a_text(text: str, number: Any) -> None:
    assert number_in(text) == number


@given(
    st.fractions(max_denominator=10**6), st.text(st.characters(exclude_categories=["Nd", "Cs"], exclude_characters="/.,-+−eE"))
)
def test_a_number_is_found_after_any_words(number: Fraction, words: str) -> None:
    assert number_in(f"{words} {number}") == number


@pytest.mark.parametrize(
    ("reply", "answer", "grade"),
    [
        ("It is \\boxed{12}, of 13", "12", RIGHT),
        ("It is 12", 12, RIGHT),
        ("\\boxed{0.3333333}", "1/3", RIGHT),
        ("\\boxed{0.333}", "1/3", WRONG),
        ("\\boxed{0.166667}", "1/6", RIGHT),
        ("\\boxed{6.62607e-34}", "6.62607015e-34", RIGHT),
        ("\\boxed{0}", "6.62607015e-34", WRONG),
        ("\\boxed{-1e-9}", "1e-9", WRONG),
        ("\\boxed{0.0}", 0, RIGHT),
        ("13", "the answer is 12", WRONG),
        ("\\boxed{1,2}", "12", WRONG),
        ("no idea", "12", NONE),
    ],
)
async def test_numbers(reply: str, answer: Any, grade: Grade) -> None:
    assert await NumberGrader().grade(reply, {"answer": answer}) == grade


CHOICES = ["Paris", "Rome", "Bonn"]


@pytest.mark.parametrize(
    ("reply", "answer", "grade"),
    [
        ("\\boxed{B}", "B", RIGHT),
        ("\\boxed{(b)}", 1, RIGHT),
        ("<answer>Rome</answer>", "Rome", RIGHT),
        ("B.", "B", RIGHT),
        ("\\boxed{A}", "B", WRONG),
        ("\\boxed{Z}", "B", WRONG),
        ("I think it is B", "B", NONE),
        ("\\boxed{1}", "B", RIGHT),
        ("\\boxed{²}", "B", WRONG),
        (f"\\boxed{{{'9' * 5000}}}", "B", WRONG),
    ],
)
async def test_choices(reply: str, answer: Any, grade: Grade) -> None:
    row = {"question": "Capital of Italy?", "choices": CHOICES, "answer": answer}
    assert not ChoiceGrader().problem(row)
    assert await ChoiceGrader().grade(reply, row) == grade
    assert await ChoiceGrader().grade(str(ChoiceGrader().solution(row)), row) == RIGHT


@given(st.lists(st.sampled_from(["a", "A", "b", "C", "0", "1", "²", "-1", "the"]), min_size=2, max_size=6), st.data())
async def test_the_solution_of_any_choices_is_right(choices: list[str], data: st.DataObject) -> None:
    answer = data.draw(st.sampled_from([*choices, *range(len(choices))]))
    row = {"question": "?", "choices": choices, "answer": answer}
    assert await ChoiceGrader().grade(str(ChoiceGrader().solution(row)), row) == RIGHT


def test_choices_are_shown_and_may_be_json_in_a_text() -> None:
    row = {"question": "Capital of Italy?", "choices": '["Paris", "Rome"]', "answer": "B"}
    assert ChoiceGrader().question(row) == "Capital of Italy?\nA. Paris\nB. Rome"
    assert ChoiceGrader().floor((row, {**row, "answer": "A"}, row)) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (
            {"choices": CHOICES, "answer": "D"},
            "needs a letter up to C, a position or one of the choices as the answer, got 'D'",
        ),
        ({"choices": CHOICES, "answer": 3}, "got '3'"),
        ({"choices": ["one"], "answer": "A"}, "a list of 2 to 26 choices"),
        ({"choices": "Paris|Rome", "answer": "A"}, "or a JSON list in a text, got 'Paris|Rome'"),
        ({"answer": "Rome"}, "needs a letter as the answer"),
    ],
)
def test_rows_that_cannot_be_graded_are_told(row: dict[str, Any], problem: str) -> None:
    assert problem in ChoiceGrader().problem({"question": "?", **row})


async def _slow(reply: str, row: dict[str, Any]) -> float:
    return float(row["weight"] * len(reply))


@pytest.mark.parametrize(
    ("function", "grade"),
    [(lambda reply, row: reply == "yes", RIGHT), (lambda reply, row: 0.25, Grade(0.25, False)), (_slow, Grade(1.5, True))],
)
async def test_a_function_grades(function: Any, grade: Grade) -> None:
    assert await FunctionGrader(function).grade("yes", {"row": {"weight": 0.5}}) == grade


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda reply, row: row["absent"], "the grader <lambda> failed: KeyError: 'absent'"),
        (lambda reply, row: "yes", "the grader <lambda> returned 'yes'; expected a bool or a number"),
    ],
)
async def test_a_function_that_fails_is_the_graders_failure(function: Any, message: str) -> None:
    with pytest.raises(GraderError, match=message):
        await FunctionGrader(function).grade("yes", {"row": {}})
