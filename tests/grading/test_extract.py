import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.grading.text_forms import HONEST, WRONG

from palestra.grading import exact_match, f1, fenced_code, first_stated_answer, last_answer, stated_answer
from palestra.grading.text import normalize


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<answer> 4 </answer>", "4"),
        ("<answer>1</answer> no, <answer>2</answer>", "2"),
        ("<answer>1</answer><answer>2", "1"),
        ("<answer>", None),
        ("</answer><answer>", None),
        ("", None),
    ],
)
def test_the_last_complete_answer_counts(text: str, expected: str | None) -> None:
    assert last_answer(text) == expected


def test_fenced_code_is_the_last_complete_block_of_its_language() -> None:
    text = "```python\nold\n```\n```text\nnot this\n```\n```python\nnew\n  x\n```\n```python\nopen"
    assert fenced_code(text, "python", "py") == "new\n  x"
    assert fenced_code(text) == "new\n  x"
    assert fenced_code(text, "rust") is None
    assert fenced_code("```\n```") == ""


@given(st.lists(st.sampled_from(["```", "```python", "\n", "x", "<answer>", "</answer>"]), max_size=40).map("".join))
def test_extraction_is_total(text: str) -> None:
    code = fenced_code(text, "python")
    assert code is None or code in text
    assert last_answer(text) is None or "<answer>" in text


@pytest.mark.parametrize(
    ("prediction", "answers", "match", "score"),
    [
        ("The Eiffel-Tower!", ["eiffeltower"], True, 1.0),
        ("a cat", "the cat", True, 1.0),
        ("black cat", ["white cat", "dog"], False, 0.5),
        ("", "", False, 0.0),
        ("yes it is", "yes", False, 0.0),
        ("no", ["no"], True, 1.0),
        ("x", [], False, 0.0),
    ],
)
def test_words_are_compared_the_usual_way(prediction: str, answers: str | list[str], match: bool, score: float) -> None:
    assert exact_match(prediction, answers) is match
    assert f1(prediction, answers) == pytest.approx(score)


def test_typography_and_articles_do_not_lose_a_right_answer() -> None:
    rows = [(said, gold) for gold, forms in HONEST.items() for said in (gold, *forms)]
    assert [row for row in rows if not exact_match(*row)] == []
    assert [row for row in rows if f1(*row) < 1.0] == []


def test_no_wrong_answer_equals_a_right_one() -> None:
    assert [row for row in WRONG if exact_match(*row)] == []


@example("A+{0")
@example("a++0")
@example("(x)-5")
@example("_+ 0")
@example("a\ue000")
@given(st.text(max_size=30))
def test_an_answer_equals_itself_in_every_normal_form(answer: str) -> None:
    if answer.strip():
        assert exact_match(answer, answer)
        assert exact_match(unicodedata.normalize("NFD", answer), unicodedata.normalize("NFC", answer))
    assert normalize(normalize(answer)) == normalize(answer)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{a} <answer>b</answer>", "a"),
        (r"<answer>b</answer> \boxed{a}", "b"),
        (r"\boxed{a} \boxed{b}", "a"),
        ("<answer>a</answer><answer>b</answer>", "a"),
        (r"\boxed{never closed <answer>b</answer>", "b"),
        (r"\boxed{open \boxed{a} {x}", "a"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\boxed{a}}", r"\boxed{a}"),
        ("<answer>never closed", None),
        ("</answer><answer>x <answer>a</answer>", "a"),
        ("} nothing {", None),
    ],
)
def test_the_first_complete_answer(text: str, answer: str | None) -> None:
    assert first_stated_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{a} \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{{{a}}b} }", "{{a}}b"),
        (r"\boxed{a{b}} \boxed{never {closed}", "a{b}"),
        (r"\boxed{{{open}} <answer>b</answer>", "b"),
    ],
)
def test_the_last_complete_box_is_the_answer(text: str, answer: str) -> None:
    assert stated_answer(text) == answer


@given(text=st.text(alphabet="a{}\\", max_size=20), opened=st.integers(0, 3))
def test_with_one_answer_first_and_last_agree(text: str, opened: int) -> None:
    plain = text.replace("\\", "").replace("{", "").replace("}", "")
    one = "{" * opened + "}" * opened + rf"\boxed{{{plain}}}"
    assert first_stated_answer(one) == stated_answer(one) == plain


def test_the_first_answer_of_a_megabyte_is_found_in_linear_time() -> None:
    assert first_stated_answer("\\boxed{" * 150_000) is None
    assert first_stated_answer("<answer>" * 150_000) is None
