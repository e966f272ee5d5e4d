"""Compare answers that are words: exact match and F1 under the usual normalization of question answering, made safe.

Lower case, no punctuation, no articles, single spaces; a prediction gets its best score over the accepted answers. The
usual normalization deletes characters that carry meaning, so this one differs in four ways:

- Numbers stay numbers: ``-5`` is not 5, ``3.5`` is not 35 and ``1/2`` is not 12.
- An article is dropped only before another word, and never if an answer consists of nothing else: ``A``, ``The The`` and
  ``Hepatitis A`` are possible answers.
- ``C``, ``C++`` and ``C#`` differ.
- Typography does not count: the shape of quotes and dashes, and accents as separate characters.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable

__all__ = ["exact_match", "f1", "normalize"]

_ARTICLES = frozenset({"a", "an", "the"})
_TYPOGRAPHY = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛`´ʼ′＇", "'"),
        **dict.fromkeys("−–—‐‑‒―﹣－", "-"),
        **dict.fromkeys("\u200b\ufeff\u00ad\u200e\u200f\u2060\ue000\ue001\ue002\ue003", ""),
    }
)
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_KEPT = re.compile(r"(?<![\w.])-(?=\.?\d)|(?<=\d)\.(?=\d)|(?<!\w)\.(?=\d)|(?<=[^\W\d])[+#]+(?!\w)")
"""Signs, decimal points, and the ends of ``C++`` and ``C#``."""
_PRIVATE = {mark: chr(0xE000 + place) for place, mark in enumerate("-.+#")}
"""Placeholder for a kept character while punctuation is removed."""
_BACK = str.maketrans({private: mark for mark, private in _PRIVATE.items()})
_BETWEEN_DIGITS = re.compile(r"(?<=\d)[^\w\s\ue000-\ue003]+(?=[\d\ue000])")


_MOST_PASSES = 8


def normalize(answer: str) -> str:
    """Return ``answer`` in the form in which it is compared. The form of a normalized answer is itself."""
    for _ in range(_MOST_PASSES):  # removing punctuation can bring a sign next to a letter: (x)-5, C+{0
        before, answer = answer, _normalized_once(answer)
        if answer == before:
            break
    return answer


def _normalized_once(answer: str) -> str:
    text = unicodedata.normalize("NFKC", answer.translate(_TYPOGRAPHY)).casefold()
    text = unicodedata.normalize("NFC", text).translate(_TYPOGRAPHY)
    text = _THOUSANDS.sub("", text)
    if any(mark in text for mark in _PRIVATE):  # the pattern takes long on a long text, and most have none of these marks
        text = _KEPT.sub(lambda found: "".join(_PRIVATE[mark] for mark in found[0]), text)
    text = _BETWEEN_DIGITS.sub(" ", text)
    punctuation = {ord(mark): None for mark in set(text) if _is_punctuation(mark)}  # few different ones, however long the text
    words = text.translate(punctuation).translate(_BACK).split()
    if not words:
        return " ".join(answer.casefold().split())  # the answer is punctuation only
    if _ARTICLES.issuperset(words):
        return " ".join(words)
    kept = [word for word in words[:-1] if word not in _ARTICLES]
    return " ".join([*kept, words[-1]])  # the last word cannot be an article: nothing follows it


def _is_punctuation(mark: str) -> bool:
    return mark in string.punctuation or unicodedata.category(mark).startswith("P")


def exact_match(prediction: str, answers: str | Iterable[str]) -> bool:
    """Return whether ``prediction`` equals one of ``answers`` after normalization. An empty prediction equals nothing."""
    said = normalize(prediction)
    return bool(said) and any(said == normalize(answer) for answer in _each(answers))


def f1(prediction: str, answers: str | Iterable[str]) -> float:
    """Return the best harmonic mean of word precision and recall over ``answers``."""
    said = normalize(prediction).split()
    return max((_f1(said, normalize(answer).split()) for answer in _each(answers)), default=0.0)


def _f1(said: list[str], meant: list[str]) -> float:
    shared = sum((Counter(said) & Counter(meant)).values())
    # Yes, no and "no answer" are right or wrong: a longer sentence that contains one is not half right.
    closed = {"yes", "no", "noanswer"}
    if not shared or (said != meant and (set(said) <= closed or set(meant) <= closed)):
        return 0.0
    precision, recall = shared / len(said), shared / len(meant)
    return 2 * precision * recall / (precision + recall)


def _each(answers: str | Iterable[str]) -> Iterable[str]:
    return [answers] if isinstance(answers, str) else answers
