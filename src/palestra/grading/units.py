r"""Units after a number: ``12 cm^2``, ``45^\circ``, ``5 meters``, ``12 apples``.

If only one of two answers has a unit, it is ignored: the question implies the unit. If both have one, both count:
``5 m`` differs from ``5 cm`` and equals ``500 cm``.
"""

import re
from fractions import Fraction
from typing import NamedTuple

from palestra.grading.words import counted

__all__ = ["Unit", "split_unit"]


class Unit(NamedTuple):
    """What a unit measures, and its size in basic units."""

    measures: str
    factor: Fraction


_TABLE: dict[str, tuple[str, str]] = {
    "mm millimeter millimetre": ("length", "0.001"),
    "cm centimeter centimetre": ("length", "0.01"),
    "dm decimeter": ("length", "0.1"),
    "m meter metre": ("length", "1"),
    "km kilometer kilometre": ("length", "1000"),
    "in inch inches": ("length", "0.0254"),
    "ft foot feet": ("length", "0.3048"),
    "yd yard": ("length", "0.9144"),
    "mi mile": ("length", "1609.344"),
    "mg milligram": ("mass", "0.000001"),
    "g gram": ("mass", "0.001"),
    "kg kilogram": ("mass", "1"),
    "lb lbs pound": ("mass", "0.45359237"),
    "oz ounce": ("mass", "0.028349523125"),
    "ms millisecond": ("time", "0.001"),
    "s sec second": ("time", "1"),
    "min minute": ("time", "60"),
    "h hr hour": ("time", "3600"),
    "day": ("time", "86400"),
    "week": ("time", "604800"),
    "month": ("months", "1"),
    "yr year": ("months", "12"),
    "ml mL milliliter millilitre": ("volume", "0.001"),
    "l L liter litre": ("volume", "1"),
    "gal gallon": ("gallons", "1"),
    "dollar USD": ("money", "1"),
    "cent": ("money", "0.01"),
    "euro": ("euros", "1"),
    "sterling": ("pounds sterling", "1"),
    "^\\circ degree deg": ("degrees", "1"),
    "rad radian": ("radians", "1"),
    "mph": ("length/time", "0.44704"),
    "N newton": ("force", "1"),
    "J joule": ("energy", "1"),
    "W watt": ("power", "1"),
    "V volt": ("voltage", "1"),
    "Hz hertz": ("frequency", "1"),
    "K kelvin": ("kelvin", "1"),
    "^\\circC": ("celsius", "1"),
    "^\\circF": ("fahrenheit", "1"),
    "unit": ("units", "1"),
}
_UNITS = {name: Unit(kind, Fraction(factor)) for names, (kind, factor) in _TABLE.items() for name in names.split()}
_UNITS |= {f"{name}s": unit for name, unit in _UNITS.items() if len(name) > 2 and name.isalpha()}
_WORD = r"[a-zA-Z]+"
_POWER = r"(?: ?\^ ?\{? ?([23]) ?\}?)?"
_ONE = rf"(?:(sq\.?|square|cubic|cu\.?) )?({_WORD}){_POWER}( squared| cubed)?"
_TRAILING = re.compile(rf"^(.*[\d)}}\]]|.*\\pi|.*\\%) ?(?<=[ \d)}}\]]){_ONE}(?: ?(?:/|per) ?{_ONE})?$")
_DEGREES = re.compile(r"^(.*?[\d)}]) ?\^\\circ ?([CF]?)$")
_SIGNS = {"\\$": "dollar", "\\euro ": "euro", "\\pound ": "sterling"}
_WORDS_OF_POWER = {"square": 2, "sq": 2, "cubic": 3, "cu": 3, " squared": 2, " cubed": 3}


def split_unit(text: str) -> tuple[str, Unit | None]:
    """Return ``text`` (spaced LaTeX) without the unit at its end, and the unit."""
    text = text.removesuffix(".").strip()
    for sign, name in _SIGNS.items():
        if text.startswith(sign):
            return text.removeprefix(sign).strip(), _UNITS[name]
        if (text.endswith(sign.strip()) and sign != "\\$") or (text.endswith(("\\$", "\\$ ")) and sign == "\\$"):
            return text.removesuffix(sign.strip()).strip(), _UNITS[name]
    if degrees := _DEGREES.match(text):
        return degrees[1], _UNITS[f"^\\circ{degrees[2]}"]
    match = _TRAILING.match(text)
    if match is None:
        return _split_noun(text)
    above, below = _unit(*match.group(2, 3, 4, 5)), _unit(*match.group(6, 7, 8, 9)) if match[7] else Unit("", Fraction(1))
    # One letter directly after a number is a variable: 5m is 5 times m.
    letter = len(match[3]) == 1 and not text[match.start(3) - 1].isspace()
    if above is None or below is None or letter:
        return _split_noun(text)
    kind = f"{above.measures}/{below.measures}" if below.measures else above.measures
    return match[1].strip(), Unit(kind, above.factor / below.factor)


def _split_noun(text: str) -> tuple[str, Unit | None]:
    """Split ``12 apples``: the counted noun is a unit of its own."""
    number, noun = counted(text)
    return (number, Unit(noun, Fraction(1))) if noun else (text, None)


def _unit(before: str | None, word: str, power: str | None, after: str | None) -> Unit | None:
    unit = _UNITS.get(word) or _UNITS.get(word.lower() if len(word) > 2 else word)
    if unit is None:
        return None
    raised = int(power or 0) or _WORDS_OF_POWER.get((before or after or "").removesuffix("."), 1)
    return unit if raised == 1 else Unit(f"{unit.measures}^{raised}", unit.factor**raised)
