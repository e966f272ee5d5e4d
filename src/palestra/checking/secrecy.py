r"""Does the first observation give the answer away?

That the answer stands in the observation proves nothing: a question with choices lists it among others, "answer \boxed{even} or
\boxed{odd}" shows it to everybody, and to find a word in a text is a task. So the answer of a task is looked for in its own
observation and, to compare, the answers of other tasks are looked for there too. Only if its own is there far more often, and
wins if it is said at once (the last of many moves is no answer), is anything said; and only if one fixed rule ("copy what
stands after *secret:*") finds it, is it called a fault.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from palestra.checking.episodes import Episode, as_scripted
from palestra.checking.report import Verdict, failed, passed, shown, skipped, warned
from palestra.checking.scores import solved, top_reward
from palestra.checking.statistic import p_value_mean_above
from palestra.checking.survey import Survey, answer_of
from palestra.trajectory import text_of

__all__ = ["answer_hidden"]

ALPHA = 0.001
"""The chance, at most, of speaking up where the own answer is no more frequent than those of others."""
MARGIN = 0.1
"""By how much the own answer must be more frequent to be mentioned."""
SHORTEST = 3
"""Characters of an answer that can be looked for at all."""
OTHERS = 20
"""Tasks that each one is compared with."""
LEFT = 12
"""Characters before an answer by which a rule could find it."""


class Puzzle(NamedTuple):
    """What is shown and what is to be found."""

    observation: str
    answer: str
    episode: Episode
    """The oracle's."""

    @property
    def shown(self) -> bool:
        """Whether the one holds the other."""
        return self.answer in self.observation


def answer_hidden(survey: Survey) -> Verdict:
    """The first observation does not hold the oracle's final answer."""
    if not survey.by("oracle"):
        return skipped("no oracle(): there is no answer to look for")
    puzzles = _puzzles(survey)
    if len({puzzle.answer for puzzle in puzzles}) < 2:
        return skipped(f"the answers are too short or too alike to look for in the observation (under {SHORTEST} characters)")
    own = [float(puzzle.shown) for puzzle in puzzles]
    others = [_others_present(puzzles, place) for place in range(len(puzzles))]
    excess = [mine - theirs for mine, theirs in zip(own, others, strict=True)]
    told = [puzzle for puzzle in puzzles if puzzle.shown]
    if p_value_mean_above(excess, MARGIN, -1.0) >= ALPHA or not _win_at_once(survey, told[:OTHERS]):
        return passed("the answer is not given away")
    seen = f"the answer stands in the first observation of {len(told)}/{len(puzzles)} tasks"
    compared = f"other tasks' answers stand in {sum(others) / len(others):.0%}"
    if rule := _copying_rule(told):
        return failed(
            f"{seen}: {rule}",
            f"For example '{shown(told[0].answer)}'; {compared}. A policy that copies it learns nothing. Keep the answer out "
            f"of the observation (info is not shown to the agent).",
        )
    return warned(
        seen,
        f"{compared.capitalize()}. This is as it should be if the task is to pick it out of what is shown; else take it out.",
    )


def _win_at_once(survey: Survey, puzzles: Sequence[Puzzle]) -> bool:
    """Whether most of these answers solve their task when they are the first thing said."""
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


def _others_present(puzzles: Sequence[Puzzle], place: int) -> float:
    """How many of the next tasks' answers stand in this task's observation, as a share."""
    mine = puzzles[place]
    following = (puzzles[(place + step) % len(puzzles)].answer for step in range(1, len(puzzles)))
    others = [answer for answer in following if answer != mine.answer][:OTHERS]
    return sum(answer in mine.observation for answer in others) / len(others)


def _copying_rule(puzzles: Sequence[Puzzle]) -> str:
    """The rule that finds nine answers of ten by what stands before them, in words; empty if there is none."""
    before: Counter[str] = Counter()
    for puzzle in puzzles:
        before.update({_left_of(puzzle, start) for start in _places(puzzle)})
    left, _ = before.most_common(1)[0]
    found = sum(_follows_first(puzzle, left) for puzzle in puzzles)
    if found < 0.9 * len(puzzles):
        return ""
    return f"it always stands after '{shown(left.strip() or left)}'" if left else "it is what the observation begins with"


def _places(puzzle: Puzzle) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(puzzle.answer), puzzle.observation)]


def _left_of(puzzle: Puzzle, start: int) -> str:
    return puzzle.observation[max(0, start - LEFT) : start]


def _follows_first(puzzle: Puzzle, left: str) -> bool:
    place = puzzle.observation.find(left) + len(left)
    return puzzle.observation.startswith(puzzle.answer, place)
