r"""Pairs for the maths grader that are made by varying forms: numbers with words after them, lists in any order, labels, fonts.

They were written after the grader was mended, to see whether the mends reach further than the pairs that asked for them.
"""

import random

import pytest
from tests.grading.equality_maths import Pair

from palestra.grading.answers import reduced
from palestra.grading.maths import MathsGrader
from palestra.grading.words import MULTIPLES, SHARES

pytest.importorskip("math_verify", reason="math-verify is not installed")


def _varied() -> tuple[list[Pair], list[Pair]]:
    """Return pairs that are equal, and pairs that are not."""
    rng = random.Random(7)
    equal: list[Pair] = []
    different: list[Pair] = []
    for n in (3, 8, 17, 40):
        for word, value in rng.sample(sorted(MULTIPLES.items()), 6):
            equal.append((f"{n} {word}", str(n * value)))
            different.append((f"{n} {word}", str(n)))
            if word != "gross":
                equal.append((f"{n} {word}s", str(n * value)))
                different.append((f"\\text{{{n} {word}s}}", str(n)))
        for word, value in rng.sample(sorted(SHARES.items()), 6):
            plural = {"half": "halves"}.get(word, f"{word}s")
            equal.append((f"{n} {plural}", f"\\frac{{{n}}}{{{value}}}"))
            different.append((f"{n} {plural}", str(n)))
        for noun in (
            "tigers",
            "green bottles",
            "possible values",
            "candies",
            "boxes",
            "cherries",
            "square tiles",
            "horses",
            "guests",
            "diagonals",
            "lattice points",
            "ordered triples",
        ):
            equal.append((f"{n} {noun}", str(n)))
        for junk in (
            "plus two",
            "approximately wrong",
            "nor nine",
            "except one",
            "modulo nine",
            "squared plus one",
            "over nine",
            "raised to three",
            "and change",
            "or fewer",
            "without zero",
            "divided by nine",
        ):
            different.append((f"{n} {junk}", str(n)))
    for vals in ([4, 900], [12, 345, 6], [-7, 250], [1000, 2], [5, 5, 8]):
        for _ in range(3):
            p = vals[:]
            rng.shuffle(p)
            equal.append((", ".join(map(str, p)), ", ".join(map(str, vals))))
            equal.append((" and ".join(map(str, p)), ", ".join(map(str, vals))))
        different.append(("".join(map(str, vals)), ", ".join(map(str, vals))))
        different.append((", ".join(map(str, vals[:-1])), ", ".join(map(str, vals))))
        different.append((", ".join(map(str, [vals[0] + 1, *vals[1:]])), ", ".join(map(str, vals))))
    for lab in (
        "g(7)",
        "CD",
        "P(B|A)",
        "\\text{Volume}",
        "\\angle PQR",
        "h'(0)",
        "T_5",
        "|PQ|",
        "\\text{Total cost}",
        "\\operatorname{Var}(X)",
        "E[X]",
        "\\det A",
        "\\frac{AB}{CD}",
        "a^2+b^2",
        "m",
        "V_{\\max}",
        "\\sum a_n",
        "\\overline{PQ}",
        "\\cos A",
        "\\binom{n}{2}",
    ):
        equal.append((f"{lab}=36", "36"))
        different.append((f"{lab}=37", "36"))
        different.append((f"{lab}\\neq 36", "36"))
    for b in range(2, 10):
        for c in range(2, 10):
            if b != c and rng.random() < 0.3:
                different.append((f"11_{c}", f"11_{b}"))
        equal.append((f"11_{{{b}}}", f"11_{b}"))
        equal.append((f"11 \\text{{ base }} {b}", f"11_{b}"))
    for h in (1, 7, 12):
        equal.append((f"{h}:00 p.m.", f"{h} pm"))
        different.append((f"{h} am", f"{h} pm"))
    for d, f in (
        ("0.\\overline{6}", "2/3"),
        ("0.(27)", "3/11"),
        ("0.8333...", "5/6"),
        ("2.\\overline{142857}", "15/7"),
        ("-0.\\overline{3}", "-1/3"),
        ("12.1212...", "400/33"),
    ):
        equal.append((d, f))
        equal.append((f, d))
        different.append((d, f + "1"))
    for a, bb in (
        ("q", "Q"),
        ("n", "N"),
        ("t>2", "s>2"),
        ("k\\leq 3", "m\\leq 3"),
        ("z_1", "z_2"),
        ("\\sin A", "\\sin a"),
        ("3k", "3K"),
        ("r^2", "R^2"),
    ):
        different.append((a, bb))
    for s in ("\\{3,7\\}", "(3,7)", "[3,7]", "3<x<7", "3\\leq x\\leq 7", "\\{3,7,9\\}"):
        for t in ("\\{3,7\\}", "(3,7)", "[3,7]", "3<x<7", "3\\leq x\\leq 7", "\\{3,7,9\\}"):
            ok = s == t or {s, t} == {"[3,7]", "3\\leq x\\leq 7"} or (t == "3<x<7" and s == "(3,7)")
            (equal if ok else different).append((s, t))
    for x in ("9", "\\frac{9}{4}", "\\sqrt{7}", "2\\pi", "-4"):
        for f in (
            "{} ",
            "${}$",
            "\\boxed{{{}}}",
            "\\mathbf{{{}}}",
            "\\left({}\\right)",
            "\\color{{blue}}{{{}}}",
            "x={}",
            "{}.",
            "\\displaystyle {}",
            "\\phantom{{8}}{}",
            "the answer is {}",
        ):
            equal.append((f.format(x), x))
        for f in (
            "\\neg {}",
            "{}?",
            "\\not={}",
            "{}+",
            "not {}",
            "{}'",
            "{}\\cup 1",
            "\\cancel{{{}}}",
            "{},1",
            "-({})",
            "{}_3",
            "{}\\ldots",
            "{} ?",
            "<{}",
        ):
            different.append((f.format(x), x))
    return list(dict.fromkeys(equal)), list(dict.fromkeys(different))


@pytest.mark.slow
@pytest.mark.full
async def test_varied_forms_are_decided_right() -> None:
    equal, different = _varied()
    assert min(len(equal), len(different)) >= 250
    async with MathsGrader() as grader:
        assert [pair for pair in equal if not await grader.equivalent(*pair)] == []
        assert [pair for pair in different if await grader.equivalent(*pair)] == []


def test_varied_forms_that_need_no_worker_are_decided_right() -> None:
    for rows, verdict in zip(_varied(), (True, False), strict=True):
        assert [pair for pair in rows if reduced(*pair) is (not verdict)] == []
