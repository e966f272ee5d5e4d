r"""Pairs for the maths grader that are made by varying forms: numbers with words, lists in any order, labels, fonts."""

import random

from tests.tables import Pair, pairs

from palestra.grading.words import MULTIPLES, SHARES

_NOUNS = "tigers|green bottles|possible values|candies|boxes|cherries|square tiles|horses|guests|diagonals|lattice points"
_JUNK = (
    "plus two|approximately wrong|nor nine|except one|modulo nine|squared plus one|over nine|raised to three|and change"
    "|or fewer|without zero|divided by nine"
)
_LABELS = (
    r"g(7)¦CD¦P(B|A)¦\text{Volume}¦\angle PQR¦h'(0)¦T_5¦|PQ|¦\text{Total cost}¦\operatorname{Var}(X)¦E[X]¦\det A¦\frac{AB}{CD}"
    r"¦a^2+b^2¦m¦V_{\max}¦\sum a_n¦\overline{PQ}¦\cos A¦\binom{n}{2}"
)
_DECIMALS = pairs(r"""
2/3 ← 0.\overline{6} ‖ 3/11 ← 0.(27) ‖ 5/6 ← 0.8333... ‖ 15/7 ← 2.\overline{142857} ‖ -1/3 ← -0.\overline{3}
400/33 ← 12.1212...
""")
_OTHER_LETTERS = pairs(r"Q ← q ‖ N ← n ‖ s>2 ← t>2 ‖ m\leq 3 ← k\leq 3 ‖ z_2 ← z_1 ‖ \sin a ← \sin A ‖ 3K ← 3k ‖ R^2 ← r^2")
_BRACKETS = [r"\{3,7\}", r"(3,7)", r"[3,7]", r"3<x<7", r"3\leq x\leq 7", r"\{3,7,9\}"]
_DRESSED = r"X |$X$|\boxed{X}|\mathbf{X}|\left(X\right)|\color{blue}{X}|x=X|X.|\displaystyle X|\phantom{8}X|the answer is X"
_CHANGED = r"\neg X|X?|\not=X|X+|not X|X'|X\cup 1|\cancel{X}|X,1|-(X)|X_3|X\ldots|X ?|<X"


def varied() -> tuple[list[Pair], list[Pair]]:
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
        equal += [(f"{n} {noun}", str(n)) for noun in [*_NOUNS.split("|"), "ordered triples"]]
        different += [(f"{n} {junk}", str(n)) for junk in _JUNK.split("|")]
    for numbers in ([4, 900], [12, 345, 6], [-7, 250], [1000, 2], [5, 5, 8]):
        gold = ", ".join(map(str, numbers))
        for _ in range(3):
            shuffled = [str(number) for number in rng.sample(numbers, len(numbers))]
            equal += [(", ".join(shuffled), gold), (" and ".join(shuffled), gold)]
        different.append(("".join(map(str, numbers)), gold))
        different += [(", ".join(map(str, wrong)), gold) for wrong in (numbers[:-1], [numbers[0] + 1, *numbers[1:]])]
    for label in _LABELS.split("¦"):
        equal.append((f"{label}=36", "36"))
        different += [(f"{label}=37", "36"), (f"{label}\\neq 36", "36")]
    for base in range(2, 10):
        different += [(f"11_{other}", f"11_{base}") for other in range(2, 10) if base != other and rng.random() < 0.3]
        equal += [(f"11_{{{base}}}", f"11_{base}"), (f"11 \\text{{ base }} {base}", f"11_{base}")]
    for hour in (1, 7, 12):
        equal.append((f"{hour}:00 p.m.", f"{hour} pm"))
        different.append((f"{hour} am", f"{hour} pm"))
    for decimal, fraction in _DECIMALS:
        equal += [(decimal, fraction), (fraction, decimal)]
        different.append((decimal, fraction + "1"))
    different += _OTHER_LETTERS
    for reply in _BRACKETS:
        for gold in _BRACKETS:
            alike = reply == gold or {reply, gold} == {"[3,7]", "3\\leq x\\leq 7"} or (reply, gold) == ("(3,7)", "3<x<7")
            (equal if alike else different).append((reply, gold))
    for gold in ("9", "\\frac{9}{4}", "\\sqrt{7}", "2\\pi", "-4"):
        equal += [(form.replace("X", gold), gold) for form in _DRESSED.split("|")]
        different += [(form.replace("X", gold), gold) for form in _CHANGED.split("|")]
    return list(dict.fromkeys(equal)), list(dict.fromkeys(different))
