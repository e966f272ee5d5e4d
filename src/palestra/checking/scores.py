"""Who scores what: the oracle everything, players who never look no more than the declared floor."""

import math
from collections.abc import Sequence
from math import fsum
from typing import Any

from palestra.checking.episodes import Episode
from palestra.checking.report import Verdict, failed, passed, shown, skipped
from palestra.checking.statistic import p_value_mean_above
from palestra.checking.survey import Survey

__all__ = ["blind_answers_fail", "constant_answer_fails", "oracle_solves", "solved", "top_reward"]

ALPHA = 0.001
"""The chance, at most, of blaming an environment whose blind players score no more than its floor."""
TOLERANCE = 0.02
"""How far above the floor does not count, as a share of the way from the floor to what the oracle scores."""


def oracle_solves(survey: Survey) -> Verdict:
    """The oracle solves every task: ``info["success"]``, or the top reward on the last step where that is not said.

    Where a ``ceiling`` is declared, it scores that on average.
    """
    episodes = survey.by("oracle")
    if not episodes:
        return skipped("no oracle(): whether tasks can be solved is not known")
    if survey.subject.ceiling is not None:
        return _reaches_the_ceiling(survey, episodes, survey.subject.ceiling)
    top = top_reward(survey)
    unsolved = [episode for episode in episodes if not solved(episode, top)]
    count = f"oracle solves {len(episodes) - len(unsolved)}/{len(episodes)}"
    if not unsolved:
        return passed(count)
    first = unsolved[0]
    last = first.steps[-1] if first.steps else None
    end = f"its last action was '{shown(last.action)}' for a reward of {last.step.reward}" if last else "it made no move"
    return failed(
        count,
        f"Task seed {first.task.seed}: {'ended' if first.ended else 'not ended'} after {len(first.steps)} turns; {end}. "
        f"Expected info['success'] to be true at the end, or a last reward of {top:g}. Repair oracle(), or "
        f"drop tasks that cannot be solved.",
    )


def _reaches_the_ceiling(survey: Survey, episodes: Sequence[Episode], ceiling: float) -> Verdict:
    scores = _scores(episodes)
    if len(scores) < len(episodes) or not all(episode.ended for episode in episodes):
        return failed("the oracle does not end every episode", "Repair oracle(): some of its episodes raise or go on forever.")
    told = f"oracle scores {_mean(scores):.2f}, the ceiling is {ceiling:.2f}"
    margin = TOLERANCE * abs(ceiling - survey.subject.floor)
    # Neither bound of the scores is known; those that were seen in the whole check stand for them.
    every = [*_scores(tuple(survey.everything)), ceiling - 1.0, ceiling + 1.0]
    below = p_value_mean_above([-score for score in scores], margin - ceiling, -max(every))
    above = p_value_mean_above(scores, ceiling + margin, min(every))
    if below < ALPHA / 2:
        return failed(told, f"The oracle is weaker than declared (blame by chance: {ALPHA:g}). Repair oracle(), or ceiling.")
    if above < ALPHA / 2:
        return failed(told, f"The oracle is better than the best player there is (blame by chance: {ALPHA:g}). Raise ceiling.")
    return passed(told)


def top_reward(survey: Survey) -> float:
    """The reward of a step that cannot be bettered: as declared, else the best that was seen."""
    declared = survey.subject.reward_range[1]
    if math.isfinite(declared):
        return declared
    seen = [float(taken.step.reward) for episode in survey.ordinary if episode.score is not None for taken in episode.steps]
    return max((reward for reward in seen if reward > 0), default=1.0)


def solved(episode: Episode, top: float) -> bool:
    """Whether the task was solved, by the environment's word or by the top reward on the last step."""
    if not episode.ended or episode.score is None:
        return False
    last = episode.steps[-1].step
    info: Any = last.info
    said = info.get("success") if isinstance(info, dict) else None
    return last.reward >= top if said is None else bool(said)


def blind_answers_fail(survey: Survey) -> Verdict:
    """A player who says nothing, or rubbish, scores about nothing."""
    means = {}
    for name in ("empty", "garbage"):
        scores = _scores(survey.by(name))
        if not scores:
            return skipped(f"{name} actions could not be scored")
        if _beats(survey, scores, survey.subject.floor, ALPHA / 2):
            return failed(
                f"{name} actions score {_mean(scores):.2f}",
                f"The mean over {len(scores)} tasks is {_mean(scores):.3f}, the declared floor is {survey.subject.floor:g} "
                f"(blame by chance: {ALPHA:g}). Give no reward to what is not an answer, or declare floor.",
            )
        means[name] = _mean(scores)
    if f"{means['empty']:.2f}" == f"{means['garbage']:.2f}":
        return passed(f"empty and garbage actions score {means['empty']:.2f}")
    return passed(f"empty actions score {means['empty']:.2f}, garbage {means['garbage']:.2f}")


def constant_answer_fails(survey: Survey) -> Verdict:
    """The answer to one task, given to all others, scores no more than the declared floor."""
    if not survey.constants:
        return skipped("no oracle() and no random actions: there is no answer to give to every task")
    best = -math.inf
    for constant in survey.constants:
        scores = _scores(constant.episodes)
        if scores and _beats(survey, scores, survey.subject.floor, ALPHA / len(survey.constants)):
            return _blame_constant(survey, constant.action, scores)
        best = max(best, _mean(scores) if scores else best)
    if best == -math.inf:
        return skipped("a constant answer could not be scored")
    return passed(f"a constant answer scores {best:.2f}")


def _blame_constant(survey: Survey, action: str, scores: Sequence[float]) -> Verdict:
    mean = _mean(scores)
    outcomes = len({episode.actions[-1] for episode in survey.by("oracle") if episode.actions})
    why, floor = "a player who never looks does as well", f"{math.ceil(mean * 20) / 20:g}"
    if 1 < outcomes < len(_WORDS) and not _beats(survey, scores, 1 / outcomes, ALPHA):
        why, floor = f"with {_WORDS[outcomes]} outcomes chance is {1 / outcomes:.2g}", f"{1 / outcomes:.2g}"
    return failed(
        f"a constant answer scores {mean:.2f}: {why} (declare floor={floor} or ask for more)",
        f"'{shown(action)}' scores {mean:.3f} on {len(scores)} tasks, the declared floor is {survey.subject.floor:g} (blame by "
        f"chance: {ALPHA:g}). A policy that learns to say just this looks as if it had learnt something. Balance the answers, "
        f"ask for more than one bit, or declare what chance is worth.",
    )


_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _beats(survey: Survey, scores: Sequence[float], floor: float, alpha: float) -> bool:
    oracle = _scores(survey.by("oracle"))
    way = _mean(oracle) - floor if oracle else 1.0
    threshold = floor + TOLERANCE * (way if way > 0 else 1.0)
    # The lowest score there can be is not known; the lowest that was seen in the whole check stands for it.
    lowest = min(_scores(tuple(survey.everything)), default=floor)
    return p_value_mean_above(scores, threshold, min(floor, lowest)) < alpha


def _scores(episodes: Sequence[Episode]) -> list[float]:
    scores = [episode.score for episode in episodes]
    return [score for score in scores if score is not None]


def _mean(scores: Sequence[float]) -> float:
    return fsum(scores) / len(scores)
