r"""Compare two mathematical answers as far as possible without algebra.

``reduced`` decides at once where it can: the same text, two numbers, two incompatible units, words, values of another shape.
Otherwise it returns what must be equal for the answers to be the same. For ``y=2x, x=a+1`` and ``x=1+a, y=x+x`` these are two
demands: only values of the same name are compared. What counts as equal stands in docs/reference/equality.md.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from palestra.grading.notation import normal, spaced, unspaced
from palestra.grading.readings import Readings
from palestra.grading.units import split_unit
from palestra.grading.words import valued

__all__ = ["Demand", "Formulas", "reduced"]

Formulas = tuple[str, str, int]
"""A formula of an answer, the one that it must equal, in plain LaTeX, and to how many places; 0: exactly."""


class Demand(NamedTuple):
    """A table of what must be equal for a row and a column to be paired; ``None`` where they cannot be."""

    options: list[list[list[Formulas] | None]]
    covers: bool = False
    """Whether each row and column needs a partner, which others may share, as in sets; otherwise they are paired one to one."""


_Verdict = bool | list[Demand]

_LONGEST = 4000
"""Most characters of an answer that are read."""
_DEEPEST = 30
"""Most brackets inside each other; an answer with more is not read."""
_LARGEST_POWER = 400
_MOST_PARTS = 20
"""Most values of one answer that need a worker."""
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{0,40})?|\.\d{1,40}"
_NUMBER = re.compile(rf"({_DIGITS})(?:(?:[eE]|(?:\\times|\\cdot)10\^)\{{?([-+]?\d{{1,4}})\}}?)?|10\^\{{?([-+]?\d{{1,4}})\}}?")
_FRACTION = re.compile(r"\\frac\{([-+]?\d{1,60})\}\{([-+]?\d{1,60})\}|([-+]?\d{1,40})/([-+]?\d{1,40})")
_MIXED = re.compile(r"\((\d{1,9})\+\\frac\{(\d{1,9})\}\{(\d{1,9})\}\)")
_DECIMAL = re.compile(r"(?<![\w}])(\d*)\.(\d+)|(?<![\w}])(\d+)\.(?!\d)")
_PLACES = re.compile(r"[-+]?\d*\.(\d+)")
_GROUPED = re.compile(r"(?<![\d.,])[1-9]\d*(?:,\d+)+(?:\.\d+)?(?![\d,])")
_RELATION = re.compile(r"[≤≥≠<>]")
_NAME = r"(?:\\[a-zA-Z]+|[a-zA-Z])(?:_(?:\w|\{\w+\}))?(?:\([a-z]\))?"
_ASSIGNMENT = re.compile(rf"({_NAME})(?:=|:=|\\to )(.+)")
_TUPLE = re.compile(rf"\(({_NAME}(?:[,;]{_NAME})+)\)=\((.+)\)")
_CHAIN = re.compile(rf"(.+?)([<≤>≥])({_NAME})([<≤>≥])(.+)")
_HALF = re.compile(rf"({_NAME})([<≤>≥])(.+)")
_HALF_TURNED = re.compile(rf"(.+?)([<≤>≥])({_NAME})")
_MEMBER = re.compile(rf"({_NAME})\\in(?![a-zA-Z]) ?(.+)")
_TURNED = {"<": ">", ">": "<", "≤": "≥", "≥": "≤"}
_SIGNS = {"\\leq": "≤", "\\geq": "≥", "\\neq": "≠"}
_WORD = re.compile(r"[A-Z]{2,}|[a-zA-Z]{4,}|(?i:yes|no|on|off|odd|all|any|one|two|six|ten)")
_TEXT = re.compile(r"\$?\\(?:text(?:bf|rm|it)?|mathrm|mbox)\{ ?([a-zA-Z][a-zA-Z'’ -]+)\}\.?\$?")
_SENTENCE = re.compile(r"[a-zA-Z]+(?:,? [a-zA-Z'-]+)+")
_LEAD_IN = re.compile(r"^.*\b(?:answer|result|solution|value)(?: is)?(?::|\s)\s*(?=[^=\s])", re.IGNORECASE)
_CHOICE = re.compile(r"\(?([A-J])\)?[.:]?")
_CHOICE_WITH_TEXT = re.compile(r"\(([A-J])\) (.+)")
_CHOSEN = re.compile(r"(?:\(([A-J])\)|([A-J])[).:]) ?((?!(?:and|or)\b)[^;]+)")
_TIME = re.compile(r"(\d{1,2})(?::(\d\d))? ?([ap])\.? ?m\b\.?|(\d{1,2}):([0-5]\d)", re.IGNORECASE)
_RATIO = re.compile(r"(\d{1,20}):(\d{1,20})")
_BASES = {
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
    "seven": 7,
    "eight": 8,
    "nine": 9,
    "ten": 10,
    "eleven": 11,
    "twelve": 12,
    "sixteen": 16,
}
_BASE = rf"(\d{{1,2}}|{'|'.join(_BASES)})"
_IN_BASE = re.compile(
    r"(?P<open>\()?((?=[A-Fa-f]{0,63}\d|[A-F]{2})[0-9A-Fa-f]{1,64})(?(open)\))"
    rf"(?:_\{{?\(?{_BASE}\)?\}}?| ?\(?base ?{_BASE}\)?)"
)
_MODULO = re.compile(r"(\d{1,15}) ?mod ?\{?(\d{1,15})\}?")
_FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "arcsin",
        "arccos",
        "arctan",
        "sinh",
        "cosh",
        "tanh",
        "log",
        "ln",
        "exp",
        "sqrt",
        "max",
        "min",
        "gcd",
        "lcm",
        "det",
    ]
)
_BINDING = re.compile(r"\\(?:sum|prod|int|lim|sin|cos|tan|cot|sec|csc|log|ln|frac)(?![a-zA-Z])|[-/]")
"""What may make an unknown disappear from the value of a formula."""
_BOUND = re.compile(r"\\(?:sum|prod|int)(?![a-zA-Z])")
_OPERATORS = [
    "frac",
    "sqrt",
    "cdot",
    "times",
    "pi",
    "infty",
    "circ",
    "pm",
    "mp",
    "left",
    "right",
    "binom",
    "choose",
    "begin",
    "end",
    "pmatrix",
    "bmatrix",
    "vmatrix",
    "matrix",
    "lfloor",
    "rfloor",
    "lceil",
    "rceil",
    "lvert",
    "rvert",
    "cup",
    "cap",
    "emptyset",
    "mathbb",
    "setminus",
    "in",
    "div",
    "ldots",
    "over",
    "not",
    "neg",
    "land",
    "lor",
    "text",
    "quad",
    "to",
    "sum",
    "prod",
    "int",
    "lim",
    *sorted(_FUNCTIONS),
]
_LETTERS = re.compile(r"\\([a-zA-Z]+)|[a-zA-Z]+")
_REFUSED = re.compile(r"\\(?:neg|lnot|not)(?![a-zA-Z])|\?|\d\)?_|[*^_=/+-]$")
"""What math-verify ignores, although it changes what is said: negations, question marks, bases, an operator at the end."""


def reduced(answer: str, gold: str, readings: Readings = Readings()) -> _Verdict:  # noqa: B008, frozen
    """Return whether ``answer`` is ``gold``, or what would have to be equal for that."""
    if len(answer) > _LONGEST:
        return False
    if answer.strip() == gold.strip() != "":
        return True
    given, wanted = _prepared(answer).rstrip(" ,;"), _prepared(gold)
    given = given if "=" in given else _LEAD_IN.sub("", given)
    if word := _TEXT.fullmatch(gold.strip()):
        if not _has_unit(wanted):
            return _words(given) == _words(word[1])
    elif _SENTENCE.fullmatch(wanted) and not set(wanted.split()) & _FUNCTIONS and max(map(len, wanted.split())) > 2:
        return _words(given) == _words(wanted)
    if not normal(given) or _depth(given) > _DEEPEST:
        return False
    for rule in (_by_choice, _by_time, _by_base):
        verdict = rule(given, wanted, readings)
        if verdict is not None:
            return verdict
    given, wanted = (re.sub(r"(?<![a-zA-Z])(?:,? )(?:and|or) ", ";", _united(text)) for text in (given, wanted))
    plain, meant_plain = unspaced(given), unspaced(wanted)
    if not plain:
        return False
    if plain == meant_plain:
        return True
    return _by_unit(given, wanted, readings)


def _prepared(text: str) -> str:
    text = valued(re.sub(r"(?<!\\)%| ?\bpercent(?:s|age points?)?\b", r"\\%", spaced(text)))
    return _MODULO.sub(lambda match: str(int(match[1]) % int(match[2])) if int(match[2]) else match[0], text)


def _depth(text: str) -> int:
    """Return how deep the brackets in ``text`` nest."""
    depth = deepest = 0
    for mark in text:
        depth += (mark in "([{") - (mark in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", spaced(text).casefold())


def _has_unit(text: str) -> bool:
    return bool(re.match(r"[-+]?[\d.\\$]", text))


def _united(text: str) -> str:
    r"""Return ``x<1 or x>2`` as a union."""
    parts = re.split(r" or ", text)
    ranges = [_range(_signed(unspaced(part))) for part in parts]
    if len(parts) < 2 or any(part is None or not part.name for part in ranges):
        return text
    return "\\cup ".join(f"{part.brackets[0]}{part.low};{part.high}{part.brackets[1]}" for part in ranges if part is not None)


# ------------------------------------------------------------------------------------------- choices, times and bases


def _by_choice(answer: str, gold: str, readings: Readings) -> _Verdict | None:
    """Compare the letter of a choice, with or without the text of the choice."""
    if letter := _CHOICE.fullmatch(gold.strip()):
        chosen = _CHOSEN.fullmatch(answer)
        if chosen is None or re.search(r"(?:\(|\b)[A-J][).:]", chosen[3]):
            return True if (bare := _CHOICE.fullmatch(answer.strip())) and bare[1] == letter[1] else None
        return (chosen[1] or chosen[2]) == letter[1]
    if not (choice := _CHOICE_WITH_TEXT.fullmatch(gold)):
        return None
    if bare := _CHOICE.fullmatch(answer.strip()):
        return bare[1] == choice[1]
    if chosen := _CHOSEN.fullmatch(answer):
        return (chosen[1] or chosen[2]) == choice[1] and reduced(chosen[3], choice[2], readings)
    return reduced(answer, choice[2], readings)


class _Time(NamedTuple):
    minutes: int
    """Since midnight, or since midnight or noon if ``half`` is unknown."""
    half: str


def _time(text: str) -> _Time | None:
    match = _TIME.fullmatch(text.strip())
    if match is None:
        return None
    hour, minute = int(match[1] or match[4]), int(match[2] or match[5] or 0)
    if match[3]:
        if not 1 <= hour <= 12 or minute > 59:
            return None
        return _Time(hour % 12 * 60 + minute + 720 * (match[3] in "pP"), match[3].lower())
    if hour > 23:
        return None
    return _Time(hour * 60 + minute, "ap"[hour > 12] if hour > 12 or hour == 0 else "")


def _by_time(answer: str, gold: str, readings: Readings) -> bool | None:
    given, wanted = _time(answer), _time(gold)
    if wanted is None:
        # A bare hour leaves the half of the day to the question.
        return given.minutes % 720 == int(gold) % 12 * 60 if given and given.half and re.fullmatch(r"\d{1,2}", gold) else None
    if given is None:
        return False
    if wanted.half and given.half:
        return given.minutes == wanted.minutes
    return not wanted.half and given.minutes % 720 == wanted.minutes % 720


def _by_base(answer: str, gold: str, readings: Readings) -> bool | None:
    given, wanted = _IN_BASE.fullmatch(unspaced(answer)), _IN_BASE.fullmatch(unspaced(gold))
    if given is None and wanted is None:
        return None
    if given is None or wanted is None:
        numeral, other = (given or wanted), unspaced(gold if given else answer)
        assert numeral is not None
        return readings.base == "asked" and numeral[2].lstrip("0").casefold() == other.lstrip("0").casefold()
    bases = [_BASES.get(match[3] or match[4], match[3] or match[4]) for match in (given, wanted)]
    return given[2].lstrip("0").casefold() == wanted[2].lstrip("0").casefold() and str(bases[0]) == str(bases[1])


# --------------------------------------------------------------------------------------------------------------- units


def _by_unit(answer: str, gold: str, readings: Readings) -> _Verdict:
    (answer, unit), (gold, meant_unit) = split_unit(answer), split_unit(gold)
    answer, gold = _signed(unspaced(answer)), _signed(unspaced(gold))
    kinds = [kind.measures if kind else "" for kind in (unit, meant_unit)]
    if readings.angles == "either" and "degrees" in kinds:
        radians = [kind == "radians" or (not kind and "\\pi" in text) for kind, text in zip(kinds, (answer, gold), strict=True)]
        if any(radians):
            answer, gold = (
                text if kind == "radians" or not kind else f"\\frac{{\\pi}}{{180}}\\cdot({text.rpartition('=')[2]})"
                for text, kind in zip((answer, gold), kinds, strict=True)
            )
            unit = meant_unit = None
    if unit is not None and meant_unit is not None:
        if unit.measures != meant_unit.measures:
            return False
        if unit.factor != meant_unit.factor:
            answer, gold = _scaled(answer, unit.factor), _scaled(gold, meant_unit.factor)
    return _compare(answer, gold, readings)


def _scaled(text: str, factor: Fraction) -> str:
    text = text.rpartition("=")[2]
    number = _number(text)
    if number is None:
        return f"\\frac{{{factor.numerator}}}{{{factor.denominator}}}\\cdot({text})"
    return f"\\frac{{{(number * factor).numerator}}}{{{(number * factor).denominator}}}"


def _signed(text: str) -> str:
    """Return ``text`` with one character for each relation."""
    for macro, sign in _SIGNS.items():
        text = re.sub(rf"{re.escape(macro)}(?: |(?![a-zA-Z]))", sign, text)
    return text


def _written(text: str, readings: Readings) -> str:
    """Return ``text`` for a worker: with exact numbers, angles in radians, and the base of each logarithm."""
    for macro, sign in _SIGNS.items():
        text = text.replace(sign, f"{macro} ")
    text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text) if not re.search(r"[(\[{]", text) else text
    text = _DECIMAL.sub(_exact, text.replace(";", ","))
    text = re.sub(r"(\d+|\\frac\{\d+\}\{\d+\})\^\\circ ?", r"(\1\\cdot\\frac{\\pi}{180})", text)
    text = re.sub(r"(?<![a-zA-Z\\])I(?![a-zA-Z_])", "I_{0}", text)  # a name, and not the imaginary unit
    return re.sub(r"\\log(?![a-zA-Z_])", r"\\ln ", text) if readings.log == "e" else text


def _exact(match: re.Match[str]) -> str:
    if match[3]:
        return match[3]
    return f"\\frac{{{int(match[1] + match[2])}}}{{{10 ** len(match[2])}}}"


# --------------------------------------------------------------------------------------------------------------- shapes


def _compare(answer: str, gold: str, readings: Readings) -> _Verdict:
    if answer == gold != "":
        return True
    if not answer or not gold:
        return False
    for rule in (_by_names, _by_shape, _by_equations, _by_percent, _by_words, _by_numbers):
        verdict = rule(answer, gold, readings)
        if verdict is not None:
            return verdict
    if _is_foreign(answer, gold):
        return False
    places = _places(answer, gold, readings)
    return [Demand([[[(_written(answer, readings), _written(gold, readings), places)]]])]


def _all(pairs: list[tuple[str, str]], readings: Readings) -> _Verdict:
    """Return the verdict on answers that are the same if all ``pairs`` are."""
    left: list[Demand] = []
    if len(pairs) > _MOST_PARTS:
        return False
    for answer, gold in pairs:
        verdict = _compare(answer, gold, readings)
        if verdict is False:
            return False
        left += verdict if isinstance(verdict, list) else []
    return left or True


def _in_any_order(answers: list[str], golds: list[str], covers: bool, readings: Readings) -> _Verdict:
    """Pair the values of two lists, or of two sets if ``covers``."""
    if not covers and len(answers) != len(golds):
        return False
    if max(len(answers), len(golds)) > _MOST_PARTS:
        numbers = [{_number(value) for value in values} for values in (answers, golds)]
        return numbers[0] == numbers[1] and None not in numbers[0] and (covers or sorted(answers) == sorted(golds))
    table: list[list[list[Formulas] | None]] = []
    for value in answers:
        row: list[list[Formulas] | None] = []
        for other in golds:
            verdict = _compare(value, other, readings)
            if isinstance(verdict, bool):
                row.append([] if verdict else None)
            elif any(len(demand.options) > 1 for demand in verdict):
                row.append(None)  # sets of sets are compared by their text only
            else:
                row.append([pair for demand in verdict for pair in demand.options[0][0] or []])
        if all(option is None for option in row):
            return False
        table.append(row)
    demand = Demand(table, covers)
    return [demand] if any(option for row in table for option in row) else _paired(demand)


def _paired(demand: Demand) -> bool:
    """Decide a table in which nothing is left to compare."""
    fits = [[option is not None for option in row] for row in demand.options]
    if demand.covers:
        return all(map(any, fits)) and all(map(any, zip(*fits, strict=True)))
    free = set(range(len(fits[0])))
    for row in fits:
        column = next((column for column in sorted(free) if row[column]), None)
        if column is None:
            return False
        free.discard(column)
    return not free


class _Shape(NamedTuple):
    kind: str
    """``set``, ``list``, ``tuple``, ``interval``, ``union`` or ``value``."""
    parts: list[str]
    brackets: str = ""
    name: str = ""
    """Of the unknown in an inequality."""


def _split(text: str, separators: str, *, thousands: bool = False) -> list[str]:
    """Split ``text`` at ``separators`` outside of brackets, with ``thousands`` except at commas inside a number."""
    inside = {
        position
        for number in _GROUPED.finditer(text if thousands else "")
        if _NUMBER.fullmatch(number[0])
        for position in range(*number.span())
    }
    parts, depth, start = [], 0, 0
    for position, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if depth or mark not in separators:
            continue
        if mark == "," and thousands and position in inside:
            continue
        parts.append(text[start:position])
        start = position + 1
    return [*parts, text[start:]]


def _enclosed(text: str) -> str:
    """Return the brackets around all of ``text``, or an empty text."""
    opening = "\\{" if text.startswith("\\{") else text[:1]
    end = "\\}" if text.endswith("\\}") else text[-1:]
    if opening not in ("(", "[", "{", "\\{", "]") or end not in (")", "]", "}", "\\}", "["):
        return ""
    if opening == "]" or (end == "[" and opening in "(["):
        return {"]": "("}.get(opening, opening) + {"[": ")"}.get(end, end)
    depth = 0
    for position, mark in enumerate(text):
        depth += (mark in "([{") - (mark in ")]}")
        if depth == 0 and position + 1 < len(text) and mark in ")]}":
            return ""
    return opening + end if depth == 0 else ""


def _shape(text: str) -> _Shape:
    name = ""
    if member := _MEMBER.fullmatch(text):
        name, text = member[1], member[2]
    text = text.replace("+\\infty", "\\infty")
    unions = re.split(r"\\cup ?(?![a-zA-Z])", text)
    if len(unions) > 1 and all(
        _enclosed(part) in ("()", "[]", "(]", "[)") and "," in part.replace(";", ",") for part in unions
    ):
        return _Shape("union", unions, name=name)
    brackets = _enclosed(text)
    if brackets == "{}" and len(_split(text[1:-1], ",;")) < 2:  # a group, as in {5}
        return _Shape("value", [text if "\\choose" in text or "\\over" in text else text[1:-1]])
    if brackets in ("\\{\\}", "{}"):
        inner = text[len(brackets) // 2 : -len(brackets) // 2]
        return _Shape("set", _split(inner, ",;") if inner else [])
    if text == "\\emptyset":
        return _Shape("set", [])
    if brackets:
        parts = _split(text[1:-1], ",;")
        ranged = len(parts) == 2 and (brackets != "()" or "\\infty" in (parts[1], parts[0].lstrip("-")) or bool(name))
        if ranged:
            return _Shape("interval", parts, brackets, name)
        if len(parts) > 1:
            return _Shape("tuple", parts, brackets)
        if brackets == "()" and _number(text) is None:
            return _shape(text[1:-1])
    if (interval := _range(text)) is not None:
        return _Shape("interval", [interval.low, interval.high], interval.brackets, interval.name)
    parts = _split(text, ",;", thousands=True)
    if len(parts) > 1:
        return _Shape("list", parts)
    signs = re.findall(r"\\pm(?![a-zA-Z])|\\mp(?![a-zA-Z])", text)
    if len(signs) == 1 and signs[0] == "\\pm" and "=" not in text:
        before, _, after = re.sub(r"\\pm ?", "±", text).partition("±")
        return _Shape("set", [f"{before}+{after}" if before else after, f"{before}-{after}"])
    return _Shape("value", [text])


def _by_shape(answer: str, gold: str, readings: Readings) -> _Verdict | None:
    """Compare lists, sets, points and intervals: shape by shape, and value by value."""
    given, wanted = _shape(answer), _shape(gold)
    if wanted.kind == "tuple" and (labelled := re.fullmatch(r"[A-Z](\(.+\))", answer)):
        given = _shape(labelled[1])
    if wanted.kind == "tuple" and wanted.brackets == "()" and len(wanted.parts) == 2 and readings.pairs == "intervals":
        wanted = wanted._replace(kind="interval")
    if wanted.kind in ("interval", "union") and given.kind == "tuple" and given.brackets == "()" and len(given.parts) == 2:
        given = given._replace(kind="interval")
    kinds = {given.kind, wanted.kind}
    if kinds == {"value"}:
        related = bool(_RELATION.search(answer)), bool(_RELATION.search(gold))
        if related[0] is not related[1] and "=" not in answer:
            return False
        if all(related) and _RELATION.match(answer) and not _RELATION.match(gold):
            answered = re.fullmatch(rf"{_NAME}([≤≥≠<>])(.+)", gold)  # \neq 3 answers x \neq 3
            return _all([(answer[1:], answered[2])], readings) if answered and answer[0] == answered[1] else False
        inner = given.parts[0], wanted.parts[0]
        return _compare(*inner, readings) if inner != (answer, gold) else None
    if kinds <= {"set", "list", "value"}:
        if "=" in answer and given.kind == "value":
            return None
        if kinds == {"set"} and not (given.parts and wanted.parts):
            return given.parts == wanted.parts
        if not given.parts or not wanted.parts:
            return False
        return _in_any_order(_bare(given.parts), _bare(wanted.parts), "set" in kinds, readings)
    if kinds == {"tuple"} or kinds == {"tuple", "list"}:
        brackets = {shape.brackets for shape in (given, wanted) if shape.kind == "tuple"}
        if len(brackets) > 1 or len(given.parts) != len(wanted.parts) or (len(kinds) > 1 and brackets != {"()"}):
            return False
        if len(kinds) > 1 and any(_enclosed(part) for part in (*given.parts, *wanted.parts)):
            return False
        return _all(list(zip(given.parts, wanted.parts, strict=True)), readings)
    if kinds == {"interval"}:
        if given.name and wanted.name and given.name != wanted.name and _RELATION.search(gold):
            return False
        if given.brackets != wanted.brackets:
            return False
        return _all(list(zip(given.parts, wanted.parts, strict=True)), readings)
    if kinds == {"union"}:
        return _in_any_order(given.parts, wanted.parts, covers=True, readings=readings)
    if kinds == {"union", "value"} or (kinds == {"interval", "value"} and "\\cup" in answer + gold):
        return None
    if "value" in kinds and "=" in answer and given.kind == "value":
        return None
    return False


def _bare(parts: list[str]) -> list[str]:
    """Return the values of ``x=1,2``: the name before the first counts for all."""
    named = _ASSIGNMENT.fullmatch(parts[0])
    return [named[2], *parts[1:]] if named and len(parts) > 1 and not any("=" in part for part in parts[1:]) else parts


class _Range(NamedTuple):
    brackets: str
    low: str
    high: str
    name: str


def _range(text: str) -> _Range | None:
    """Read an inequality as an interval."""
    if "=" in text:
        return None
    if match := _CHAIN.fullmatch(text):
        low, first, name, second, high = match.groups()
        if (first in "<≤") is not (second in "<≤") or _RELATION.search(low + high):
            return None
        if first in ">≥":
            low, first, second, high = high, second, first, low
        return _Range(("[" if first in "≤≥" else "(") + ("]" if second in "≤≥" else ")"), low, high, name)
    match, turned = _HALF.fullmatch(text), _HALF_TURNED.fullmatch(text)
    if match:
        name, relation, bound = match.groups()
    elif turned:
        name, relation, bound = turned[3], _TURNED[turned[2]], turned[1]
    else:
        return None
    if _RELATION.search(bound):
        return None
    if relation in "<≤":
        return _Range("(]" if relation == "≤" else "()", "-\\infty", bound, name)
    return _Range("[)" if relation == "≥" else "()", bound, "\\infty", name)


# ------------------------------------------------------------------------------------------------------------ equations


def _by_names(answer: str, gold: str, readings: Readings) -> _Verdict | None:
    """Compare the values of named unknowns: by name, or in the order of the names."""
    given, wanted = _assignments(answer), _assignments(gold)
    if wanted is None:
        shape = _shape(gold)
        if shape.kind == "list" and (values := _bare(shape.parts)) is not shape.parts:
            shape = _shape(answer)
            return _in_any_order(_bare(shape.parts), values, shape.kind == "set", readings) if shape.kind != "tuple" else False
        if "=" in gold:
            return False if "=" not in answer else [Demand([[[(_written(answer, readings), _written(gold, readings), 0)]]])]
        if given is None or len({name for name, _ in given}) > 1:
            return None
        if len(given) == 1:  # x=5 answers 5
            return _compare(given[0][1], gold, readings)
        shape = _shape(gold)
        parts = shape.parts if shape.kind in ("list", "set") else [gold]
        return _in_any_order([value for _, value in given], parts, shape.kind == "set", readings)
    names, values = [name for name, _ in wanted], [value for _, value in wanted]
    if given is None and len(values) == 1 and "=" in answer:
        return [Demand([[[(_written(answer, readings), _written(gold, readings), 0)]]])]
    if given is None:
        shape = _shape(answer)
        parts = [answer] if len(values) == 1 else shape.parts if shape.kind in ("list", "tuple", "set") else [answer]
        if len(set(names)) < len(names):
            return _in_any_order(parts, values, False, readings)
        if shape.kind == "set" and len(values) > 1:
            return False
        return _all(list(zip(parts, values, strict=True)), readings) if len(parts) == len(values) else False
    if sorted(name for name, _ in given) != sorted(names):
        if len(given) == len(wanted) == 1 and given[0][0] in values[0] and names[0] in given[0][1]:
            return [Demand([[[(_written(answer, readings), _written(gold, readings), 0)]]])]  # x=y-1 answers y=x+1
        return False
    if len(set(names)) < len(names):
        return _in_any_order([value for _, value in given], values, False, readings)
    return _all([(dict(given)[name], value) for name, value in wanted], readings)


def _assignments(text: str) -> list[tuple[str, str]] | None:
    if match := _TUPLE.fullmatch(text):
        names, values = re.split("[,;]", match[1]), _split(match[2], ",;")
        return list(zip(names, values, strict=True)) if len(names) == len(values) else None
    parts = [_ASSIGNMENT.fullmatch(part) for part in _split(text, ",;", thousands=True)]
    assigned = [(part[1], part[2]) for part in parts if part is not None]
    if len(assigned) < len(parts) or any(len(_split(value, "=")) > 1 or _RELATION.search(value) for _, value in assigned):
        return None
    return assigned


def _by_equations(answer: str, gold: str, readings: Readings) -> _Verdict | None:
    """Compare an equation with a value: ``f(2)=5`` and ``2+3=5`` answer 5.

    A part with an unknown names the value, where the value has none itself. Every other part must be equal to it.
    """
    parts = _split(answer, "=")
    if len(parts) < 2 or "=" in gold:
        return None
    if parts[0] == "":
        return len(parts) == 2 and _compare(parts[1], gold, readings)
    if _unknowns(gold):
        first, *others = parts
        is_name = re.fullmatch(rf"{_NAME}|{_NAME}\(.*\)|[a-zA-Z ]+", first)
        return _all([(part, gold) for part in (others if is_name else parts)], readings)
    *labels, last = parts
    if _unknowns(last) and not _BOUND.search(last):
        if re.fullmatch(_NAME, last) is None:
            return False
        labels, last = labels[:-1], labels[-1]  # 5=x
    values = [part for part in labels if not _unknowns(part)]
    return _all([(part, gold) for part in (*values, last)], readings)


def _unknowns(text: str) -> set[str]:
    """Return the letters and macros in ``text`` that are not constants, functions or operators."""
    unknowns = set()
    for match in _LETTERS.finditer(text):
        if match[1] is not None:
            unknowns |= {match[1]} - set(_OPERATORS)
        elif match[0] not in _FUNCTIONS:
            unknowns |= set(match[0]) - set("ei")
    return unknowns


# ------------------------------------------------------------------------------------------------------ words and numbers


def _by_percent(answer: str, gold: str, readings: Readings) -> _Verdict | None:
    given, wanted = (text.removesuffix("\\%") for text in (answer, gold))
    if given.endswith("\\%"):
        return False
    if (given == answer) is (wanted == gold):
        return _compare(given, wanted, readings) if given != answer else None
    bare = answer if given == answer else gold
    if readings.percent == "unit":
        return _compare(given, wanted, readings)
    number = _number(bare)
    if readings.percent == "either" and number is not None and abs(number) > 1 and _compare(given, wanted, readings) is True:
        return True
    hundredth = Fraction(1, 100)
    answer, gold = (text if text is bare else _scaled(text[:-2], hundredth) for text in (answer, gold))
    return _compare(answer, gold, readings)


def _by_words(answer: str, gold: str, readings: Readings) -> bool | None:
    """Compare letters that stand for themselves. The factors of a product may change order, letters of a name may not."""
    answer, gold = (re.sub(r"^\(([A-Z])\)$", r"\1", text) for text in (answer, gold))
    if gold == f"\\mathbb{{{answer}}}":
        return True
    if _WORD.fullmatch(gold) or (_WORD.fullmatch(answer) and not gold.islower()):
        return answer.casefold() == gold.casefold()
    if answer == gold:
        return True
    name = rf"{_NAME}'*"
    return False if re.fullmatch(name, answer) and re.fullmatch(name, gold) and "\\" not in answer + gold else None


def _by_numbers(answer: str, gold: str, readings: Readings) -> bool | None:
    if re.search(r"\d [\d{]", answer) and not re.search(r"\d [\d{]", gold):
        return False  # two numbers side by side are neither one number nor a product
    answer, gold = _ratio(answer), _ratio(gold)
    number, wanted = _number(_without_stray(answer)), _number(gold)
    if (number is None and wanted is not None and _unknowns(answer) and not _BINDING.search(answer)) or (
        wanted is None and number is not None and _unknowns(gold) and not _BINDING.search(gold)
    ):
        return False  # 3m is not 3
    if number is None or wanted is None:
        return None
    places = _places(answer, gold, readings)
    return number == wanted if not places else abs(number - wanted) * 2 * 10**places <= 1


def _places(answer: str, gold: str, readings: Readings) -> int:
    """Return to how many places the two are compared: those of the one that is a decimal, if enough; else 0."""
    places = [len(match[1]) if (match := _PLACES.fullmatch(text)) else 0 for text in (answer, gold)]
    return max(places) if readings.decimals and min(places) == 0 and max(places) >= readings.decimals else 0


def _ratio(text: str) -> str:
    match = _RATIO.fullmatch(text)
    return f"{match[1]}/{match[2]}" if match else text


def _without_stray(text: str) -> str:
    """Return a number without a bracket, comma or semicolon that belongs to nothing."""
    text = text.rstrip(",;")
    if text[:1] in ("(", "[") and not re.search(r"[)\]]", text):
        return text[1:]
    return text[:-1] if text[-1:] in (")", "]") and not re.search(r"[(\[]", text) else text


def _is_foreign(answer: str, gold: str) -> bool:
    """Whether ``answer`` has words or signs that no formula of ``gold`` has, and that a worker would not notice."""
    if bool(_REFUSED.search(answer)) or answer.count("'") != gold.count("'"):
        return True
    letters = set("".join(_LETTERS.findall(gold)) + re.sub(r"\\[a-zA-Z]+", "", gold))
    words = [match[0] for match in _LETTERS.finditer(answer) if match[1] is None and len(match[0]) > 2]
    return any(
        word not in _FUNCTIONS and not set(word) <= letters for word in words if word not in ("pmatrix", "bmatrix", "vmatrix")
    )


def _number(text: str) -> Fraction | None:
    sign, text = _sign_apart(text)
    if match := _NUMBER.fullmatch(text):
        power = int(match[2] or match[3] or 0)
        if abs(power) > _LARGEST_POWER:
            return None
        return sign * Fraction((match[1] or "1").replace(",", "").rstrip(".")) * Fraction(10) ** power
    if match := _MIXED.fullmatch(text):
        units, above, below = map(int, match.groups())
        return sign * (units + Fraction(above, below)) if below else None
    match = _FRACTION.fullmatch(text)
    if match is None:
        return None
    above, below = (int(part) for part in (match.group(1, 2) if match[1] else match.group(3, 4)))
    return sign * Fraction(above, below) if below else None


def _sign_apart(text: str) -> tuple[int, str]:
    """Return the sign before a number and the rest: ``--5`` is 5."""
    rest = text.lstrip("+-")
    return (-1) ** text[: len(text) - len(rest)].count("-"), rest
