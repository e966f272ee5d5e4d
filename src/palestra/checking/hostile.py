r"""Texts that models write or can be made to write. No step may raise an exception on one, or take long.

Large texts have growing sizes. A parser with quadratic cost shows at a size where it takes seconds; larger sizes are then not
tried, so that the check ends.
"""

from collections.abc import Callable

__all__ = ["GROWING", "SHORT", "SIZES"]

SIZES = (256, 1024, 4096, 16384, 65536, 262144, 1048576)
"""Up to one megabyte. A text that is four times as long takes a quadratic parser sixteen times as long."""


def _boxed(content: str) -> str:
    return f"\\boxed{{{content}}}"


SHORT: dict[str, str] = {
    "empty text": "",
    "white space": " \n\t\r\v\f\u00a0\u2028",
    "NUL": "a\x00b",
    "NUL in a box": _boxed("1\x002"),
    "control characters": "\x1b[31m\x07\x08\x7f\x85",
    "bidi marks": "\u202e\\boxed\u202c{\u20661\u2069}",
    "bidi marks in a box": _boxed("\u202e12\u202c"),
    "a lone surrogate": "\ud800",
    "a lone surrogate in a box": _boxed("\udfff"),
    "an unclosed box": "\\boxed{1",
    "a closed box never opened": "boxed}1{",
    "an empty box": _boxed(""),
    "nan": _boxed("nan"),
    "infinity": _boxed("-inf"),
    "a number beyond floats": _boxed("1e999"),
    "a negative number": _boxed("-1"),
    "a fraction of zero": _boxed("1/0"),
    "digits that int() refuses": _boxed("²①"),
    "digits of another script": _boxed("٣"),
    "a number with underscores": _boxed("1_0"),
    "a list": _boxed("[[1, 2], [3"),
    "JSON null": _boxed("null"),
    "format fields": _boxed("{0.__class__} %s %n"),
    "a path": _boxed("../../../etc/passwd"),
    "an open tag": '<tool_call>{"name": ',
    "emoji and combining marks": _boxed("👩‍👩‍👧 e\u0301\u0323"),
}

GROWING: dict[str, Callable[[int], str]] = {
    "letters": lambda size: "a" * size,
    "spaces": lambda size: " " * size,
    "lines": lambda size: "a b\n" * (size // 4),
    "digits in a box": lambda size: _boxed("9" * size),
    "words in a box": lambda size: _boxed("up " * (size // 3)),
    "openings of boxes": lambda size: "\\boxed{" * (size // 7),
    "boxes in boxes": lambda size: "\\boxed{" * (size // 8) + "}" * (size // 8),
    "deep braces in a box": lambda size: _boxed("{" * (size // 2) + "}" * (size // 2)),
    "deep brackets in a box": lambda size: _boxed("[" * (size // 2) + "]" * (size // 2)),
    "deep parentheses in a box": lambda size: _boxed("(" * (size // 2) + ")" * (size // 2)),
    "open tags": lambda size: "<think>" * (size // 7),
}
