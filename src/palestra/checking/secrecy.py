r"""Checks that the first observation does not give the answer away.

An answer in the observation alone is no fault: a multiple-choice question lists the answer among others, "answer \boxed{even}
or \boxed{odd}" shows it in every task, and finding a word in a text is a task. So the check compares two frequencies: how often
the own answer occurs in a task's observation, and how often the answers of other tasks occur there. It warns if the own answer
occurs far more often and solves the task as the first action (the last of many moves is not an answer). It fails if, in
addition, one fixed rule finds the answer, such as "copy the text after *secret:*".
"""

import re
from collections import Counter
from collections.abc import Sequence
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
    """The first observation of a task and the answer to it."""

    observation: str
    answer: str
    episode: PlayedEpisode
    """The episode of the oracle."""

    @property
    def shown(self) -> bool:
        """Whether the observation contains the answer."""
        return self.answer in self.observation


def answer_hidden(survey: Survey) -> Verdict:
    """The first observation does not contain the oracle's final answer."""
    if not survey.by("oracle"):
        return skipped("no oracle(), so there is no answer to search for")
    puzzles = _puzzles(survey)
    if len({puzzle.answer for puzzle in puzzles}) < 2:
        return skipped(f"no search for the answer: the answers have under {SHORTEST} characters or are all the same")
    own = [float(puzzle.shown) for puzzle in puzzles]
    others = [_others_present(puzzles, place) for place in range(len(puzzles))]
    excess = [mine - theirs for mine, theirs in zip(own, others, strict=True)]
    exposed = [puzzle for puzzle in puzzles if puzzle.shown]
    if p_value_mean_above(excess, MARGIN, -1.0) >= ALPHA or not _win_at_once(survey, exposed[:OTHERS]):
        return passed("the answer is not given away")
    seen = f"the answer is in the first observation of {len(exposed)}/{len(puzzles)} tasks"
    compared = f"answers of other tasks are in {sum(others) / len(others):.0%}"
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


def _others_present(puzzles: Sequence[Puzzle], place: int) -> float:
    """Return the share of other tasks' answers that occur in this task's observation."""
    mine = puzzles[place]
    following = (puzzles[(place + step) % len(puzzles)].answer for step in range(1, len(puzzles)))
    others = [answer for answer in following if answer != mine.answer][:OTHERS]
    return sum(answer in mine.observation for answer in others) / len(others)


def _copying_rule(puzzles: Sequence[Puzzle]) -> str:
    """Describe a rule that finds nine of ten answers by the text before them; empty if there is none."""
    before: Counter[str] = Counter()
    for puzzle in puzzles:
        before.update({_left_of(puzzle, start) for start in _places(puzzle)})
    left, _ = before.most_common(1)[0]
    found = sum(_follows_first(puzzle, left) for puzzle in puzzles)
    if found < 0.9 * len(puzzles):
        return ""
    return f"it always follows '{shown(left.strip() or left)}'" if left else "the observation begins with it"


def _places(puzzle: Puzzle) -> list[int]:
    return [match.start() for match in re.finditer(re.escape(puzzle.answer), puzzle.observation)]


def _left_of(puzzle: Puzzle, start: int) -> str:
    return puzzle.observation[max(0, start - LEFT) : start]


def _follows_first(puzzle: Puzzle, left: str) -> bool:
    place = puzzle.observation.find(left) + len(left)
    return puzzle.observation.startswith(puzzle.answer, place)
