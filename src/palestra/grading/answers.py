r"""Compare two mathematical answers as far as possible without algebra.

``reduced`` decides at once where it can: the same text, two numbers, two incompatible units, letters that are not a product.
Otherwise it returns the pairs of formulas that must be equal for the answers to be the same. For ``y=2x, x=a+1`` and
``x=1+a, y=x+x`` these are two pairs: only values of the same name are compared.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from palestra.grading.notation import normal, spaced
from palestra.grading.units import Unit, split_unit

__all__ = ["Pairs", "reduced"]

Pairs = list[tuple[str, str]]
"""Formulas of an answer and what they must equal, in plain LaTeX."""

_LONGEST = 4000
"""Most characters of an answer that are read."""
_LARGEST_POWER = 400
_MOST_PAIRS = 20
"""Most formulas of one answer: each may take a worker its whole time limit."""
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{0,40})?|\.\d{1,40}"
_NUMBER = re.compile(rf"({_DIGITS})(?:(?:[eE]|(?:\\times|\\cdot)10\^)\{{?([-+]?\d{{1,4}})\}}?)?|10\^\{{?([-+]?\d{{1,4}})\}}?")
_FRACTION = re.compile(r"\\frac\{([-+]?\d{1,40})\}\{([-+]?\d{1,40})\}|([-+]?\d{1,40})/([-+]?\d{1,40})")
_MIXED = re.compile(r"\((\d{1,9})\+\\frac\{(\d{1,9})\}\{(\d{1,9})\}\)")
_RELATION = re.compile(r"[≤≥≠<>]")
_NAME = r"(?:\\[a-zA-Z]+|[a-zA-Z])(?:_(?:\w|\{\w+\}))?(?:\([a-z]\))?"
_ASSIGNMENT = re.compile(rf"({_NAME})(?:=|:=|\\to )(.+)")
_TUPLE = re.compile(rf"\(({_NAME}(?:,{_NAME})+)\)=\((.+)\)")
_CHAIN = re.compile(rf"(.+?)([<≤>≥])({_NAME})([<≤>≥])(.+)")
_HALF = re.compile(rf"({_NAME})([<≤>≥])(.+)")
_HALF_TURNED = re.compile(rf"(.+?)([<≤>≥])({_NAME})")
_MEMBER = re.compile(rf"{_NAME}\\in(?![a-zA-Z]) ?(.+)")
_TURNED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}
_SIGNS = {"\\leq": "≤", "\\geq": "≥", "\\neq": "≠"}
_BRACKETS = ("()", "[]", "(]", "[)")
_WORD = re.compile(r"[A-Z]{2,}|[a-zA-Z]{4,}|(?i:yes|no|on|off|odd|all|any|one|two|six|ten)")
_LETTER = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z](?![a-zA-Z])")


def reduced(answer: str, gold: str) -> bool | Pairs:
    """Return whether ``answer`` is ``gold``, or the formulas that would have to be equal for that."""
    if len(answer) > _LONGEST:
        return False
    if answer.strip() == gold.strip() != "":
        return True
    said, meant = (re.sub(r" (?:and|or) ", ",", re.sub(r"(?<!\\)%| percent", r"\\%", spaced(text))) for text in (answer, gold))
    plain, meant_plain = normal(said), normal(meant)
    if not plain:
        return False
    if plain == meant_plain:
        return True
    (said, unit), (meant, meant_unit) = _unit_apart(said, plain), _unit_apart(meant, meant_plain)
    if unit is not None and meant_unit is not None:
        if unit.measures != meant_unit.measures:
            return False
        if unit.factor != meant_unit.factor:
            said, meant = _scaled(said, unit.factor), _scaled(meant, meant_unit.factor)
    return _reduced(said, meant)


def _unit_apart(text: str, plain: str) -> tuple[str, Unit | None]:
    """Return ``text`` without its unit, as ``_signed`` writes it, and the unit. ``plain`` is ``normal(text)``."""
    number, unit = split_unit(text)
    return _signed(plain if number == text else normal(number)), unit


def _signed(text: str) -> str:
    """Return ``text`` with one character for each relation."""
    for macro, sign in _SIGNS.items():
        text = re.sub(rf"{re.escape(macro)}(?: |(?![a-zA-Z]))", sign, text)
    return text


def _written(text: str) -> str:
    for macro, sign in _SIGNS.items():
        text = text.replace(sign, f"{macro} ")
    return text


def _scaled(text: str, factor: Fraction) -> str:
    number = _number(text)
    if number is None:
        return f"\\frac{{{factor.numerator}}}{{{factor.denominator}}}\\cdot({text})"
    return f"\\frac{{{(number * factor).numerator}}}{{{(number * factor).denominator}}}"


def _reduced(said: str, meant: str) -> bool | Pairs:
    if said == meant:
        return True
    for reduce in (_by_names, _by_ranges, _by_equations, _by_words, _by_numbers):
        found = reduce(said, meant)
        if found is not None:
            return found
    return [(_written(said), _written(meant))]


def _all(pairs: Pairs) -> bool | Pairs:
    """Return the verdict on answers that are the same if all ``pairs`` are."""
    left: Pairs = []
    if len(pairs) > _MOST_PAIRS:
        return False
    for said, meant in pairs:
        found = _reduced(said, meant)
        if found is False:
            return False
        left += found if isinstance(found, list) else []
    return left or True


# ------------------------------------------------------------------------------------------------------------ assignments


def _by_names(said: str, meant: str) -> bool | Pairs | None:
    """Compare the values of named unknowns: by name, or in the order of the names."""
    given, wanted = _assignments(said), _assignments(meant)
    if wanted is None:
        if given is None or len({name for name, _ in given}) > 1:
            return None
        if len(given) == 1:  # x=5 answers 5
            return _all([(given[0][1], meant)])
        return [(_set([value for _, value in given]), _set(_parts(meant)))]
    names, values = [name for name, _ in wanted], [value for _, value in wanted]
    if given is None:
        parts = [said] if len(values) == 1 else _parts(said[1:-1] if said[:1] + said[-1:] in ("()", "\\{") else said)
        if len(set(names)) < len(names):
            return [(_set(parts), _set(values))]
        return _all(list(zip(parts, values, strict=True))) if len(parts) == len(values) else False
    if sorted(name for name, _ in given) != sorted(names):
        return False
    if len(set(names)) < len(names):
        return [(_set([value for _, value in given]), _set(values))]
    return _all([(dict(given)[name], value) for name, value in wanted])


def _set(values: list[str]) -> str:
    return f"\\{{{','.join(values)}\\}}"


def _assignments(text: str) -> list[tuple[str, str]] | None:
    if found := _TUPLE.fullmatch(text):
        names, values = found[1].split(","), _parts(found[2])
        return list(zip(names, values, strict=True)) if len(names) == len(values) else None
    parts = [_ASSIGNMENT.fullmatch(part) for part in _parts(text)]
    assigned = [(part[1], part[2]) for part in parts if part is not None]
    if len(assigned) < len(parts) or any("=" in value or _RELATION.search(value) for _, value in assigned):
        return None
    return assigned


def _parts(text: str) -> list[str]:
    """Split ``text`` at its commas outside of brackets, except those that separate thousands."""
    parts, depth, start = [], 0, 0
    is_number = _NUMBER.fullmatch(text) is not None
    for place, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if mark == ";" or (mark == "," and depth == 0 and not is_number):
            parts.append(text[start:place])
            start = place + 1
    return [*parts, text[start:]]


# ----------------------------------------------------------------------------------------------------------------- ranges


class _Range(NamedTuple):
    brackets: str
    low: str
    high: str


def _by_ranges(said: str, meant: str) -> bool | Pairs | None:
    """Compare inequalities and intervals: ``1<x<2`` is ``(1,2)``. They never equal an answer that is neither."""
    one, other = _range(said), _range(meant)
    related = bool(_RELATION.search(said)), bool(_RELATION.search(meant))
    if one is not None and other is not None and (any(related) or "\\in" in said + meant):
        return _all([(one.low, other.low), (one.high, other.high)]) if one.brackets == other.brackets else False
    if related[0] is not related[1] and "\\cup" not in said + meant:
        return False
    if all(related) and _RELATION.match(said) and not _RELATION.match(meant):
        found = re.fullmatch(rf"{_NAME}([≤≥≠<>])(.+)", meant)  # \neq 3 answers x \neq 3
        return _all([(said[1:], found[2])]) if found and said[0] == found[1] else False
    return None


def _range(text: str) -> _Range | None:
    if member := _MEMBER.fullmatch(text):
        text = member[1]
    text = text.replace("+\\infty", "\\infty")
    if text[:1] + text[-1:] in _BRACKETS and len(parts := _parts(text[1:-1])) == 2:
        return _Range(text[0] + text[-1], parts[0], parts[1])
    if found := _CHAIN.fullmatch(text):
        low, first, _, second, high = found.groups()
        if (first in "<≤") is not (second in "<≤"):
            return None
        if first in ">≥":
            low, first, second, high = high, second, first, low
        return _Range(("[" if first in "≤≥" else "(") + ("]" if second in "≤≥" else ")"), low, high)
    found, turned = _HALF.fullmatch(text), _HALF_TURNED.fullmatch(text)
    relation, bound = (found[2], found[3]) if found else (_TURNED[turned[2]], turned[1]) if turned else ("", "")
    if not relation or _RELATION.search(bound):
        return None
    if relation in "<≤":
        return _Range("(]" if relation == "≤" else "()", "-\\infty", bound)
    return _Range("[)" if relation == "≥" else "()", bound, "\\infty")


def _by_equations(said: str, meant: str) -> bool | Pairs | None:
    """Compare a computation that ends in the answer, ``A=3+4=7``: every part of it must equal the answer."""
    if "=" not in said or "=" in meant:
        return None
    first, *others = said.split("=")
    return _all([(part, meant) for part in (others if re.fullmatch(_NAME, first) else [first, *others])])


# ------------------------------------------------------------------------------------------------------ words and numbers


def _by_words(said: str, meant: str) -> bool | None:
    """Compare letters that stand for themselves. The factors of a product may change order, letters of a name may not."""
    said, meant = (re.sub(r"^\(([A-Z])\)$", r"\1", text) for text in (said, meant))
    if _WORD.fullmatch(meant) or (_WORD.fullmatch(said) and not meant.islower()):
        return said.casefold() == meant.casefold()
    return True if said == meant else None


def _by_numbers(said: str, meant: str) -> bool | None:
    one, other = _numbers(said), _numbers(meant)
    if re.search(r"\d \d", said) and not re.search(r"\d \d", meant):
        return False  # two numbers side by side are neither one number nor a product
    if (one is None and _unknown(said) and other is not None) or (other is None and _unknown(meant) and one is not None):
        return False  # 3m is not 3
    if one is None or other is None or one.around != other.around or len(one.numbers) != len(other.numbers):
        return None
    pairs = [_same_number(*pair) for pair in zip(one.numbers, other.numbers, strict=True)]
    return False if False in pairs else None if None in pairs else True


def _unknown(text: str) -> bool:
    """Whether ``text`` contains a letter that is not a constant."""
    return any(letter not in "ei" for letter in _LETTER.findall(text))


class _Numbers(NamedTuple):
    """Plain numbers and what surrounds them: nothing, brackets or a percent sign."""

    around: str
    numbers: tuple[Fraction, ...]


def _numbers(text: str) -> _Numbers | None:
    around = ""
    if text.endswith("\\%"):
        text, around = text[:-2], "%"
    elif text[:1] + text[-1:] in _BRACKETS and "," in text:
        around, parts = text[0] + text[-1], text[1:-1].split(",")
        numbers = [number for part in parts if (number := _number(part)) is not None]
        return _Numbers(around, tuple(numbers)) if len(numbers) == len(parts) else None
    number = _number(text)
    return None if number is None else _Numbers(around, (number,))


def _same_number(one: Fraction, other: Fraction) -> bool | None:
    if one == other:
        return True
    # A rounded decimal may stand for a fraction, so only clearly different numbers are rejected here.
    clearly = abs(one - other) > Fraction(1, 100) * max(abs(one), abs(other))
    return False if clearly or one.denominator == other.denominator == 1 else None


def _number(text: str) -> Fraction | None:
    sign = -1 if text.startswith("-") else 1
    text = text[1:] if text[:1] in ("-", "+") else text
    if found := _NUMBER.fullmatch(text):
        power = int(found[2] or found[3] or 0)
        if abs(power) > _LARGEST_POWER:
            return None
        return sign * Fraction((found[1] or "1").replace(",", "").rstrip(".")) * Fraction(10) ** power
    if found := _MIXED.fullmatch(text):
        whole, above, below = map(int, found.groups())
        return sign * (whole + Fraction(above, below)) if below else None
    found = _FRACTION.fullmatch(text)
    if found is None:
        return None
    above, below = (int(part) for part in (found.group(1, 2) if found[1] else found.group(3, 4)))
    return sign * Fraction(above, below) if below else None
