"""The sizes of the corpora on which every judge is tested, and no row twice."""

from tests.grading import honest_code, maths_forms, text_forms
from tests.grading.hacks import ALTERED, HACKS
from tests.grading.hostile_answers import HOSTILE


def test_there_are_two_hundred_and_fifty_hacks_and_more() -> None:
    for rows in (maths_forms.WRONG, text_forms.WRONG, [altered.name for altered in ALTERED], [hack.name for hack in HACKS]):
        assert len(set(rows)) == len(rows)
    wrong = [*maths_forms.WRONG, *text_forms.WRONG]
    # A hack is tried on three judges of code; here it counts once.
    assert len(HACKS) + len(ALTERED) + len(wrong) >= 400
    assert len(set(HOSTILE)) >= 200


def test_there_are_a_thousand_honest_forms() -> None:
    code = [*honest_code.RETURNED, *honest_code.CALLED, *honest_code.ADDED, *honest_code.PROGRAMS, *honest_code.JSON_VALUES]
    assert len(set(map(repr, code))) == len(code)
    maths = [(form, gold) for gold, forms in maths_forms.HONEST.items() for form in forms]
    words = [(form, gold) for gold, forms in text_forms.HONEST.items() for form in {gold, *forms}]
    assert len(set(maths)) == len(maths)
    assert len(code) + len(maths) + len(words) >= 1000
