"""Compare answers that are words: exact match and F1 under the usual normalization of question answering, made safe.

Lower case, no punctuation, no articles, single spaces; a prediction gets its best score over the accepted answers. The
usual normalization deletes characters that carry meaning, so this one differs in five ways:

- Numbers stay numbers: ``-5`` is not 5, ``3.5`` is not 35, ``1/2`` is not 12, and ``>5``, ``5%`` and ``5!`` are not 5.
- A sign at the end of a word counts (``A-``, ``O+``, ``C#``), and so does a mark between single characters (``a-b``, ``A/B``).
- An article is dropped only before another word, and never if an answer consists of nothing else: ``A``, ``The The`` and
  ``Hepatitis A`` are possible answers.
- A hyphen or slash inside a longer word may also be a space or be missing: ``Jean-Paul``, ``Jean Paul``, ``JeanPaul``.
- Typography does not count: the shape of quotes and dashes, accents as separate characters, and what cannot be seen.

docs/reference/equality.md has the whole table.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable

__all__ = ["exact_match", "f1", "normalize", "too_long"]

_ARTICLES = frozenset({"a", "an", "the"})
_MARKS = "-.+#*/:^=<>~!%‰&"
_PRIVATE = {mark: chr(0xE000 + number) for number, mark in enumerate(_MARKS)}
"""Placeholder for a kept mark while punctuation is removed."""
_BACK = str.maketrans({private: mark for mark, private in _PRIVATE.items()})
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛`´ʼ′＇", "'"),
        **dict.fromkeys("−–—‐‑‒―﹣－", "-"),
        **dict.fromkeys(["™", "℠", "®", "©", *_PRIVATE.values()], ""),
        "\u2044": "/",
    }
)
_POWER = re.compile("[⁺⁻]?[⁰¹²³⁴-⁹]+(?![⁰¹²³⁴-⁹⁺⁻])")
"""A superscript number; a superscript sign behind one is the charge of an ion."""
_FRACTION = re.compile(r"(?<=\d)(?=[¼-¾⅐-⅞↉])")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DATE = re.compile(r"(?<![\d./-])(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})(?![\d/-]|\.\d)")
_SPACES = [
    (re.compile(r"(?<=\d) +- +(?=\d)"), "-"),
    (re.compile(r"^([^\w-]*)-\s+(?=\$?\.?\d)"), r"\1-"),
    (re.compile(r"([<>~≤≥≈])\s+(?=[-$]?\.?\d)"), r"\1"),
    (re.compile(r"(?<=\d)\s+(?=[%‰])"), ""),
    (re.compile(r"[,;]"), " "),
]
"""Spaces around marks that may be written with or without them."""
_KEPT = re.compile(
    r"(?<![\w.])-(?=\$?\.?\d)"  # a sign
    r"|(?<=\d)[-.+*/:^=](?=\d)|(?<!\w)\.(?=\d)"  # between digits, and .5
    r"|\^(?=-?\w)|[<>~](?=[-$]?\.?\d)|(?<=\d)[%‰]|(?<=\d)!(?!\w)"
    r"|(?<=[^\W_])[+#-]+(?!\w)"  # A-, O+, C++, C#
    r"|(?<=\b\w)[-/&](?=\w\b)"  # between single characters
)
_STAR = re.compile(r"(?<=[^\W_])\*(?!\w)")
_INNER = re.compile(r"(?<=\w)[-/](?=\w)")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^\w\s\ue000-\ue00f]+(?=[\d\ue000])")


_MOST_PASSES = 8
_LONGEST, _TIMES = 2000, 4
"""Characters of an answer that are compared in any case, and how many times those of the longest accepted answer may be."""


def normalize(answer: str) -> str:
    """Return ``answer`` in the form in which it is compared. The form of a normalized answer is itself."""
    return _normalized(answer, "")


def _normalized(answer: str, hyphen: str, percent: bool = False) -> str:
    """Return ``answer`` in the form in which it is compared, with ``hyphen`` for hyphens and slashes inside words."""
    for _ in range(_MOST_PASSES):  # removing punctuation can bring a sign next to a letter: (x)-5, C+{0
        before, answer = answer, _normalized_once(answer, hyphen, percent)
        if answer == before:
            break
    return answer


def _normalized_once(answer: str, hyphen: str, percent: bool) -> str:
    text = _POWER.sub(lambda power: "^" + power[0], answer)
    text = _FRACTION.sub(" ", text).translate(_TYPOGRAPHY)
    text = unicodedata.normalize("NFKC", text).casefold().replace("i\u0307", "i")  # İ
    text = unicodedata.normalize("NFC", text).translate(_TYPOGRAPHY)
    text = text.translate({ord(mark): None for mark in set(text) if unicodedata.category(mark) == "Cf"})
    plain = " ".join(text.split())
    size = len(text)
    stars = min(size - len(text.lstrip("*")), size - len(text.rstrip("*")), max(size - 1, 0) // 2)
    text = text[stars : size - stars]  # emphasis
    text = text.replace(">=", "≥").replace("<=", "≤")
    text = _DATE.sub(r"\1-\2-\3", _THOUSANDS.sub("", text))
    for pattern, written in _SPACES:
        text = pattern.sub(written, text)
    if percent:
        text = re.sub(r"(?<=\d)%", "", text)
    if any(mark in text for mark in _MARKS):  # the patterns take long on a long text, and most have none of these marks
        text = _KEPT.sub(_held, text)
        text = _STAR.sub(_held, text) if text.count("*") == 1 else text  # A*, but not *emphasis* inside an answer
        text = _INNER.sub(hyphen and _PRIVATE.get(hyphen, hyphen), text)
    text = _BETWEEN_DIGITS.sub(" ", text)
    punctuation = {ord(mark): None for mark in set(text) if _is_punctuation(mark)}  # few different ones, however long the text
    words = text.translate(punctuation).translate(_BACK).split()
    if not words:
        return plain or " ".join(answer.casefold().split())  # the answer is punctuation only, or cannot be seen
    if _ARTICLES.issuperset(words):
        return " ".join(words[1:] if words[0] == "the" != words[-1] else words)
    kept = [word for word in words[:-1] if word not in _ARTICLES]
    return " ".join([*kept, words[-1]])  # the last word cannot be an article: nothing follows it


def _held(marks: re.Match[str]) -> str:
    return "".join(_PRIVATE[mark] for mark in marks[0])


def _is_punctuation(mark: str) -> bool:
    return mark in string.punctuation or unicodedata.category(mark).startswith("P")


def too_long(prediction: str, accepted: Iterable[str]) -> bool:
    """Return whether ``prediction`` is too long to equal an accepted answer: to normalize it would hold the event loop."""
    return len(prediction) > max([_LONGEST, *(_TIMES * len(answer) for answer in accepted)])


def exact_match(prediction: str, answers: str | Iterable[str], *, percent: bool = False, hyphens: bool = False) -> bool:
    """Return whether ``prediction`` equals one of ``answers`` after normalization. An empty prediction equals nothing, and
    neither does one of more than 2,000 characters that is more than four times as long as every accepted answer.

    Args:
        prediction: The answer to judge.
        answers: The accepted answer, or several.
        percent: The question asks for a percentage, so ``5%`` and ``5`` are equal.
        hyphens: Hyphens and slashes inside words count, so ``re-sign`` and ``resign`` differ.
    """
    accepted = _each(answers)
    if too_long(prediction, accepted):
        return False
    for hyphen in ("-",) if hyphens else ("", " "):
        given = _normalized(prediction, hyphen, percent)
        if given and any(given == _normalized(answer, hyphen, percent) for answer in accepted):
            return True
    return False


def f1(prediction: str, answers: str | Iterable[str]) -> float:
    """Return the best harmonic mean of word precision and recall over ``answers``."""
    forms = [(_normalized(prediction, hyphen).split(), hyphen) for hyphen in ("", " ")]
    return max(
        (_f1(given, _normalized(answer, hyphen).split()) for answer in _each(answers) for given, hyphen in forms), default=0.0
    )


def _f1(given: list[str], meant: list[str]) -> float:
    shared = sum((Counter(given) & Counter(meant)).values())
    # Yes, no and "no answer" are right or wrong: a longer sentence that contains one is not half right.
    closed = {"yes", "no", "noanswer"}
    if not shared or (given != meant and (set(given) <= closed or set(meant) <= closed)):
        return 0.0
    precision, recall = shared / len(given), shared / len(meant)
    return 2 * precision * recall / (precision + recall)


def _each(answers: str | Iterable[str]) -> list[str]:
    return [answers] if isinstance(answers, str) else list(answers)
