r"""Checks that the first observation does not give the answer away, in any of several spellings.

An answer in the observation alone is no fault: a multiple-choice question lists the answer among others, "answer \boxed{even}
or \boxed{odd}" shows it in every task, and finding a word in a text is a task. So the check compares two frequencies: how often
the own answer occurs in a task's observation, and how often the answers of other tasks occur there. It warns if the own answer
occurs far more often and solves the task as the first action (the last of many moves is not an answer). It fails if, in
addition, one fixed rule finds the answer, such as "copy the text after *secret:*".

It looks for the answer as it is written, in other letters and with other separators (``[3, 3, 0]`` and ``330`` for ``3 3 0``),
and transformed: in words, backward, in base64, in hexadecimal or by ROT13. To undo a transformation may be the task, so there
it only warns.
"""

import base64
import codecs
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from palestra.checking.episodes import PlayedEpisode, as_scripted
from palestra.checking.report import Verdict, failed, passed, shown, skipped, warned
from palestra.checking.scores import solved, top_reward
from palestra.checking.statistic import p_value_mean_above
from palestra.checking.survey import Survey, answer_of
from palestra.trajectory import text_of

__all__ = ["answer_hidden"]

ALPHA = 0.001
"""The highest probability of a finding although the own answer is no more frequent than those of other tasks."""
MARGIN = 0.1
"""By how much the own answer must be more frequent to count."""
SHORTEST = 3
"""The fewest characters of an answer that the check searches for."""
OTHERS = 20
"""Number of other tasks with which each task is compared."""
LEFT = 12
"""Characters before an answer by which a rule may find it."""


class Puzzle(NamedTuple):
    """The first observation of a task and the answer to it, both in one spelling."""

    observation: str
    answer: str
    episode: PlayedEpisode
    """The episode of the oracle."""

    @property
    def shown(self) -> bool:
        """Whether the observation contains the answer."""
        return self.answer in self.observation


class Spelling(NamedTuple):
    """A way to write an answer."""

    name: str
    observation: Callable[[str], str]
    """What is searched, made from the observation."""
    answer: Callable[[str], str]
    """What is searched for, made from the answer; empty if the answer has no such spelling."""
    copied: bool = True
    """Whether who copies the text has the answer. Otherwise it must be transformed, which may be the task."""


def _as_is(text: str) -> str:
    return text


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _tokens(text: str) -> str:
    """Return the words and numbers of ``text``, each between spaces."""
    return " ".join(["", *re.findall(r"-?\d+(?:\.\d+)?|[^\W\d_]+", _folded(text)), ""])


def _joined(text: str) -> str:
    return re.sub(r"[\W_]+", "", _folded(text))


_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def _in_words(text: str) -> str:
    """Return ``text`` with a word for each digit; empty if it has none."""
    return _joined(re.sub(r"\d", lambda digit: _DIGITS[int(digit[0])], _folded(text))) if re.search(r"\d", text) else ""


def _backward(text: str) -> str:
    return "" if _joined(text) == _joined(text)[::-1] else _joined(text)[::-1]


def _base64(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode().rstrip("=").casefold()


def _rot13(text: str) -> str:
    """Return ``text`` with each letter moved by 13 places; empty if it has none."""
    moved = codecs.encode(_folded(text), "rot13")
    return "" if moved == _folded(text) else moved


SPELLINGS = (
    Spelling("", _as_is, _as_is),
    Spelling("in other letters", _folded, _folded),
    Spelling("with other separators", _tokens, _tokens),
    Spelling("without its separators", _joined, _joined),
    Spelling("in words", _joined, _in_words, copied=False),
    Spelling("backward", _joined, _backward, copied=False),
    Spelling("in base64", str.casefold, _base64, copied=False),
    Spelling("in hexadecimal", _joined, lambda text: text.encode("utf-8", "replace").hex(), copied=False),
    Spelling("by ROT13", _folded, _rot13, copied=False),
)
"""The first that finds the answers decides."""


def answer_hidden(survey: Survey) -> Verdict:
    """The first observation does not contain the oracle's final answer, in any of the spellings."""
    if not survey.by("oracle"):
        return skipped("no oracle(), so there is no answer to search for")
    puzzles = _puzzles(survey)
    if len({puzzle.answer for puzzle in puzzles}) < 2:
        return skipped(f"no search for the answer: the answers have under {SHORTEST} characters or are all the same")
    uncertain = 0
    for spelling in SPELLINGS:
        spelled = [
            Puzzle(spelling.observation(puzzle.observation), answer, puzzle.episode)
            for puzzle in puzzles
            if len((answer := spelling.answer(puzzle.answer)).strip()) >= SHORTEST
        ]
        if len({puzzle.answer for puzzle in spelled}) < 2:
            continue
        present = [float(puzzle.shown) for puzzle in spelled]
        others = [_others_present(spelled, index) for index in range(len(spelled))]
        excess = [mine - theirs for mine, theirs in zip(present, others, strict=True)]
        exposed = [puzzle for puzzle in spelled if puzzle.shown]
        if p_value_mean_above(excess, MARGIN, -1.0) < ALPHA / len(SPELLINGS):
            if _win_at_once(survey, exposed[:OTHERS]):
                return _given_away(spelling, spelled, exposed, sum(others) / len(others))
        elif sum(excess) > len(excess) / 2 and _win_at_once(survey, exposed[:OTHERS]):
            uncertain = max(uncertain, len(exposed))  # so few tasks that even all of them prove nothing
    if uncertain:
        return skipped(f"the answer is in the first observation of {uncertain} of {len(puzzles)} tasks: too few to tell")
    if len(puzzles) < len(survey.by("oracle")):
        return passed(f"the answer is not given away (in the {len(puzzles)} tasks whose answer is long enough)")
    return passed("the answer is not given away")


def _given_away(spelling: Spelling, puzzles: Sequence[Puzzle], exposed: Sequence[Puzzle], others: float) -> Verdict:
    """Return the finding for answers that are in the observations in ``spelling``."""
    how = f" {spelling.name}" if spelling.name else ""
    seen = f"the answer is in the first observation of {len(exposed)}/{len(puzzles)} tasks{how}"
    compared = f"answers of other tasks are in {others:.0%}"
    if not spelling.copied:
        return warned(
            seen,
            f"{compared.capitalize()}. This is correct if the task is to find and decode it there. Otherwise remove it.",
        )
    if rule := _copying_rule(exposed):
        return failed(
            f"{seen}: {rule}",
            f"For example '{shown(exposed[0].answer)}'; {compared}. A policy can copy the answer without solving the task. "
            f"Remove it from the observation (the agent does not see info).",
        )
    return warned(
        seen,
        f"{compared.capitalize()}. This is correct if the task is to find the answer in the observation. Otherwise remove it.",
    )


def _win_at_once(survey: Survey, puzzles: Sequence[Puzzle]) -> bool:
    """Whether most of these answers solve their task as the first action."""
    top = top_reward(survey)
    first = [
        survey.subject.play(puzzle.episode.task, "answer", as_scripted(puzzle.episode.actions[-1:]), turns=1)
        for puzzle in puzzles
    ]
    return 2 * sum(solved(episode, top) for episode in first) > len(first)


def _puzzles(survey: Survey) -> list[Puzzle]:
    answered = [episode for episode in survey.by("oracle") if episode.actions and not episode.error]
    puzzles = [Puzzle(text_of(episode.observation), answer_of(episode.actions[-1]), episode) for episode in answered]
    return [puzzle for puzzle in puzzles if len(puzzle.answer) >= SHORTEST]


def _others_present(puzzles: Sequence[Puzzle], index: int) -> float:
    """Return the share of other tasks' answers that occur in this task's observation."""
    mine = puzzles[index]
    following = (puzzles[(index + step) % len(puzzles)].answer for step in range(1, len(puzzles)))
    others = [answer for answer in following if answer != mine.answer][:OTHERS]
    return sum(answer in mine.observation for answer in others) / len(others)


def _copying_rule(puzzles: Sequence[Puzzle]) -> str:
    """Describe a rule that finds nine of ten answers by the text before them; empty if there is none."""
    before: Counter[str] = Counter()
    for puzzle in puzzles:
        before.update({_left_of(puzzle, start) for start in _places(puzzle)})
    left, _ = before.most_common(1)[0]
    explained = sum(_follows_first(puzzle, left) for puzzle in puzzles)
    if explained < 0.9 * len(puzzles):
        return ""
    return f"it always follows '{shown(left.strip() or left)}'" if left else "the observation begins with it"


def _places(puzzle: Puzzle) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(puzzle.answer), puzzle.observation)]


def _left_of(puzzle: Puzzle, start: int) -> str:
    return puzzle.observation[max(0, start - LEFT) : start]


def _follows_first(puzzle: Puzzle, left: str) -> bool:
    start = puzzle.observation.find(left) + len(left)
    return puzzle.observation.startswith(puzzle.answer, start)
