"""Answers that are words: exact match and F1 under the normalisation that question-answering benchmarks share.

Lower case, no punctuation, no articles, single spaces; a prediction is worth its best score over the accepted answers.
"""

import re
import string
from collections import Counter
from collections.abc import Iterable

__all__ = ["exact_match", "f1", "normalise"]

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> str:
    """``answer`` as it is compared."""
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_NO_PUNCTUATION)).split())


def exact_match(prediction: str, answers: str | Iterable[str]) -> bool:
    """Whether ``prediction`` equals one of ``answers`` after normalisation. An empty prediction equals nothing."""
    said = normalise(prediction)
    return bool(said) and any(said == normalise(answer) for answer in _each(answers))


def f1(prediction: str, answers: str | Iterable[str]) -> float:
    """The best harmonic mean of word precision and recall over ``answers``."""
    said = normalise(prediction).split()
    return max((_f1(said, normalise(answer).split()) for answer in _each(answers)), default=0.0)


def _f1(said: list[str], meant: list[str]) -> float:
    shared = sum((Counter(said) & Counter(meant)).values())
    # Yes, no and "no answer" are right or wrong; a longer sentence that contains one is not half right.
    closed = {"yes", "no", "noanswer"}
    if not shared or (said != meant and (set(said) <= closed or set(meant) <= closed)):
        return 0.0
    precision, recall = shared / len(said), shared / len(meant)
    return 2 * precision * recall / (precision + recall)


def _each(answers: str | Iterable[str]) -> Iterable[str]:
    return [answers] if isinstance(answers, str) else answers
