r"""One notation for mathematics that people type in many ways.

``normal`` turns a model's text (Unicode, ASCII or LaTeX) into plain LaTeX without changing its meaning. It removes spaces
except where they carry meaning: ``3 4`` is not 34, and ``\pi r`` is not ``\pir``. Groups of three digits are one number, and a
whole number before a fraction makes a mixed number.
"""

import re
import unicodedata
from collections.abc import Callable

__all__ = ["normal", "spaced", "unspaced"]

_SYMBOLS = {
    **dict.fromkeys("−–—‐‑‒―﹣－", "-"),
    **dict.fromkeys("×✕⨯", r"\times "),
    **dict.fromkeys("·⋅∙•", r"\cdot "),
    **dict.fromkeys("÷∕⁄", "/"),
    **dict.fromkeys("≤⩽≦", r"\leq "),
    **dict.fromkeys("≥⩾≧", r"\geq "),
    **dict.fromkeys("∅⌀Ø", r"\emptyset "),
    **dict.fromkeys("\u00a0\u2009\u202f\u2002\u2003\u2007\u200a", " "),
    **dict.fromkeys("\u200b\u2060\ufeff\u200e\u200f\u2061\u2062", ""),
    "≠": r"\neq ",
    "∞": r"\infty ",
    "π": r"\pi ",
    "𝜋": r"\pi ",
    "±": r"\pm ",
    "∓": r"\mp ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "∖": r"\setminus ",
    "∨": r"\lor ",
    "∧": r"\land ",
    "°": r"^\circ ",
    "º": r"^\circ ",
    "ℝ": r"\mathbb{R}",
    "ℤ": r"\mathbb{Z}",
    "ℕ": r"\mathbb{N}",
    "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}",
    "θ": r"\theta ",
    "α": r"\alpha ",
    "β": r"\beta ",
    "γ": r"\gamma ",
    "λ": r"\lambda ",
    "φ": r"\phi ",
    "ω": r"\omega ",
    "Δ": r"\Delta ",
    "…": r"\ldots ",
    "’": "'",
    "′": "'",
    "‰": " permille",
    "≈": "=",
    "€": r"\euro ",
    "£": r"\pound ",
    "¬": r"\neg ",
}
_ROOTS = {"√": r"\sqrt", "∛": r"\sqrt[3]", "∜": r"\sqrt[4]"}
_TRANSLATED = str.maketrans(_SYMBOLS)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ⁽⁾", "0123456789+-ni()")
_LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋ₙ", "0123456789+-n")

_SAME: list[tuple[str, str | Callable[[re.Match[str]], str]]] = [
    (r"\\(?:[hv]?phantom|[xb]?cancel|sout|st) *\{(?:[^{}]|\{[^{}]*\})*\}", ""),
    (r"\\(?:text)?color *\{[^{}]*\}", ""),
    (r"\\(?:fbox|boxed|underline) *\{([^{}]*)\}", r"{\1}"),
    (r"\\(?:tiny|small|large|Large|LARGE|huge|Huge|bf|it)(?![a-zA-Z])", ""),
    (r"\\mathbb *\{? *(\d+) *\}?", r"\1"),
    (r"\\mathbb +([A-Z])", r"\\mathbb{\1}"),
    (r"\\([RQZNC])(?![a-zA-Z])", r"\\mathbb{\1}"),
    (r"\\not *(?:=|\\eq(?![a-zA-Z]))", r"\\neq "),
    (r"\\(?:approx|simeq|thickapprox)(?![a-zA-Z])", "="),
    (r"\\colon(?![a-zA-Z])", ":"),
    (r"(?<=\d) ?x ?(?=10 ?\^)", r"\\times "),
    (r"\\b?mod(?![a-zA-Z])", " mod "),
    (r"\\begin *\{(?:cases|aligned)\}([^&]*?)\\end *\{(?:cases|aligned)\}", lambda match: re.sub(r"\\\\", ",", match[1])),
    (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
    (r"\\(?:left|right|[bB]igg?[lr]?)(?=[^a-zA-Z]|\\)(?:\.)?", ""),
    (r"\\(?:displaystyle|textstyle|limits|nolimits|phantom\{\})", ""),
    (r"\\le(?![a-zA-Z])|\\leqslant|<=|=<", r"\\leq "),
    (r"\\ge(?![a-zA-Z])|\\geqslant|>=", r"\\geq "),
    (r"\\lt(?![a-zA-Z])", "<"),
    (r"\\gt(?![a-zA-Z])", ">"),
    (r"\\ne(?![a-zA-Z])|!=", r"\\neq "),
    (r"\\(?:varnothing|O)(?![a-zA-Z])", r"\\emptyset "),
    (r"\\l?brace(?![a-zA-Z])", r"\\{"),
    (r"\\rbrace(?![a-zA-Z])", r"\\}"),
    (r"\\(?:degree|textdegree)(?![a-zA-Z])", r"^\\circ "),
    (r"\^\s*\{\s*\\circ\s*\}", r"^\\circ "),
    (r"\\(?:mathrm|mathbf|textbf|textrm|textit|mathit|operatorname|mbox|text|boldsymbol|rm)\s*\{([^{}]*)\}", r" \1 "),
    (r"\\(?:mathrm|mathbf|mathit|boldsymbol|textbf|text|underline|fbox|boxed) *(?=\{)", ""),
    (r"(?<!\\)\\(?:qquad|quad|enspace|thinspace|[,;: >]|hspace\{[^{}]*\})|~", " "),
    (r"(?<!\\)\\!", ""),
    (r"\{,\}", ","),
    (r"(?<![a-zA-Z\\])(?:infinity|inf|oo)(?![a-zA-Z])", r"\\infty "),
    (r"(?<![a-zA-Z\\])pi(?![a-zA-Z])", r"\\pi "),
    (r"\*\*", "^"),
    (r"(?<![a-zA-Z\\])sqrt(?![a-zA-Z])", r"\\sqrt"),
    (r"\*", r"\\cdot "),
    (r"(?<=\d) ?\\cdot ?(?=[a-zA-Z]|\\(?:pi|sqrt)(?![a-zA-Z]))", ""),
    (r"(?<![a-zA-Z\\])([a-z]) ?\\cdot ?(?=[a-z](?![a-zA-Z]))", r"\1"),
    (r"\\frac ?(\d) ?(\d)(?!\d)", r"\\frac{\1}{\2}"),
    (r"\\dots[bc]?(?![a-zA-Z])|\\cdots(?![a-zA-Z])", r"\\ldots "),
    (r"\\neg?\s*=", r"\\neq "),
]
_REPLACED: list[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]] = [
    (re.compile(pattern), by) for pattern, by in _SAME
]
_DELIMITERS = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"))
_REPEATING = re.compile(
    r"(?<![\d.,])(\d{0,20})\.(\d{0,40})(?:\\(?:overline|bar|dot) ?(?:\{ ?(\d{1,20}) ?\}|(\d))|\((\d{1,20})\))"
    r"|(?<![\d.,])(\d{0,20})\.(\d{2,60}) ?(?:\.\.\.|\\ldots(?![a-zA-Z]))"
)
"""A decimal with a repeated part that is marked, or that is written at least twice before dots."""
_BLOCK = re.compile(r"(\d+?)\1+$")
_VULGAR = re.compile(r"(\d?)\s*([½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅐⅛⅜⅝⅞⅑⅒])")
_GROUPS = re.compile(r"(?<![\d.,])(\d{1,3})((?: \d{3})+)(?![\d/]| \d)")
_MIXED = re.compile(
    r"(?<![\d.^_{/])(\d{1,9}) ?(?:\\frac ?\{ ?(\d{1,9}) ?\} ?\{ ?(\d{1,9}) ?\}|(?<= )(\d{1,9}) ?/ ?(\d{1,9})(?![\d.]))"
)
_ROUND = re.compile(r"(\\sqrt(?:\[[34]\]| )?|\^)?\(|\)")
"""A round bracket, and the root or exponent that it is the argument of."""
_KEPT = re.compile(r"(?<=\d) (?=[\d.{])|(?<=[a-zA-Z]) (?=[a-zA-Z])|(?<=[a-zA-Z]) (?=\d)")


def normal(text: str) -> str:
    """Return ``text`` in plain LaTeX, without meaningless spaces."""
    return unspaced(spaced(text))


def unspaced(text: str) -> str:
    """Return ``text``, as ``spaced`` writes it, without meaningless spaces."""
    text = _braced(text).replace("{}", "")
    marked = _KEPT.sub("\0", text)
    return marked.replace(" ", "").replace("\0", " ").replace("$", "").rstrip(".")


def spaced(text: str) -> str:
    """Return ``text`` in plain LaTeX with its spaces, which distinguish ``5 m`` from ``5m``."""
    text = text.strip()
    for opening, end in _DELIMITERS:
        if text.startswith(opening) and text.endswith(end) and len(text) >= len(opening) + len(end):
            text = text[len(opening) : len(text) - len(end)].strip()
    text = _VULGAR.sub(_vulgar, text)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻ⁿⁱ⁽⁾]+", lambda match: f"^{{{match[0].translate(_RAISED)}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉₊₋ₙ]+", lambda match: f"_{{{match[0].translate(_LOWERED)}}}", text)
    for root, macro in _ROOTS.items():
        text = text.replace(root, macro)
    text = unicodedata.normalize("NFKC", text.translate(_TRANSLATED))
    for pattern, by in _REPLACED:
        text = pattern.sub(by, text)
    text = re.sub(r"\s+", " ", text).strip()
    text = _REPEATING.sub(_repeated, text)
    text = re.sub(r"(?<![\d.,])\d{1,3}(?:\.\d{3}){2,}(?![\d.,])", lambda match: match[0].replace(".", ""), text)
    text = re.sub(r"(?<=[\d)}]) ?, (?=[-+]?[\d\\(])|(?<=\d) ,(?=\d)", ";", text)
    text = _GROUPS.sub(lambda match: match[0].replace(" ", ""), text)
    return _MIXED.sub(_mixed, text)


def _repeated(match: "re.Match[str]") -> str:
    integer, fixed = match[1] or match[6] or "", match[2] or ""
    block = match[3] or match[4] or match[5] or ""
    if match[7] is not None:
        shown = _BLOCK.search(match[7])
        if shown is None:
            return f"{integer}.{match[7]}\\ldots "
        fixed, block = match[7][: shown.start()], shown[1]
    below = (10 ** len(block) - 1) * 10 ** len(fixed)
    above = int(f"{integer}{fixed}{block}") - int(f"{integer}{fixed}" or 0)
    return f"\\frac{{{above}}}{{{below}}}"


def _vulgar(match: "re.Match[str]") -> str:
    above, _, below = unicodedata.normalize("NFKC", match[2]).partition("⁄")
    return f"{match[1]}\\frac{{{above}}}{{{below}}}"


def _mixed(match: "re.Match[str]") -> str:
    units, above, below = match[1], match[2] or match[4], match[3] or match[5]
    if int(above) >= int(below):
        return match[0]  # 2 7/3 is not a mixed number
    return f"({units}+\\frac{{{above}}}{{{below}}})"


def _braced(text: str) -> str:
    r"""Add braces that LaTeX does not require (``\frac12``), and replace round brackets (``sqrt(2)``, ``x^(1/2)``)."""
    text = re.sub(r"\\frac ?(\d|[a-z]) ?(\d|[a-z])(?![\da-z])", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac ?(\d|[a-z]) ?\{", r"\\frac{\1}{", text)
    text = re.sub(r"(\\frac ?\{[^{}]*\}) ?(\d|[a-z])(?![}\d])", r"\1{\2}", text)
    text = re.sub(r"(\\sqrt(?:\[\d\])?) ?(\d+|[a-z])", r"\1{\2}", text)
    text = re.sub(r"\^ ?(-\d+)", r"^{\1}", text)
    return _unrounded(text)


def _unrounded(text: str) -> str:
    """Return ``text`` with braces for the round brackets of a root or exponent. One pass, so the cost is linear."""
    marks, opened = list(text), list[tuple[int, bool]]()
    for match in _ROUND.finditer(text):
        if match[0] != ")":
            opened.append((match.end() - 1, match[1] is not None))
        elif opened:
            start, is_argument = opened.pop()
            if is_argument:
                marks[start], marks[match.start()] = "{", "}"
                marks[start - 1] = marks[start - 1].strip()
    return "".join(marks)
