"""Checks of scores: the oracle solves every task, and players that ignore the task score no more than the declared floor."""

import math
from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np

from palestra.checking.episodes import PlayedEpisode
from palestra.checking.report import Verdict, failed, passed, shown, skipped, warned
from palestra.checking.statistic import p_value_mean_above
from palestra.checking.survey import Survey

__all__ = ["blind_answers_fail", "constant_answer_fails", "oracle_solves", "random_plays", "solved", "top_reward"]

ALPHA = 0.001
"""The highest probability with which a check fails although the environment is correct."""
_SURE = f"(the probability of so large a difference by chance is below {ALPHA:g})"
SUSPICION = 0.2
"""A constant answer above the floor is a warning if its p-value is lower. The test is strict, so few warnings are false."""
TOLERANCE = 0.02
"""Differences below this share of the distance from the floor to the oracle's mean score are ignored."""


def oracle_solves(survey: Survey) -> Verdict:
    """The oracle solves every task: ``info["success"]`` is true or, without that key, the last reward is the highest possible.

    With a declared ``ceiling``, the oracle's mean score equals the ceiling.
    """
    episodes = survey.by("oracle")
    if not episodes:
        return skipped("no oracle(), so it is unknown whether tasks can be solved")
    if survey.subject.ceiling is not None:
        return _reaches_the_ceiling(survey, episodes, survey.subject.ceiling)
    top = top_reward(survey)
    unsolved = [episode for episode in episodes if not solved(episode, top)]
    count = f"oracle solves {len(episodes) - len(unsolved)}/{len(episodes)}"
    if not unsolved:
        return passed(count)
    first = unsolved[0]
    last = first.steps[-1] if first.steps else None
    end = f"the last action was '{shown(last.action)}' with a reward of {last.step.reward}" if last else "it made no move"
    return failed(
        count,
        f"Task seed {first.task.seed}: {'ended' if first.ended else 'not ended'} after {len(first.steps)} turns; {end}. "
        f"Expected info['success'] to be true at the end, or a last reward of {top:g}. Repair oracle(), or "
        f"remove tasks that cannot be solved.",
    )


def _reaches_the_ceiling(survey: Survey, episodes: Sequence[PlayedEpisode], ceiling: float) -> Verdict:
    scores = _scores(episodes)
    if len(scores) < len(episodes) or not all(episode.ended for episode in episodes):
        return failed(
            "the oracle does not end every episode", "Repair oracle(): some of its episodes raise an exception or never end."
        )
    summary = f"oracle scores {_mean(scores):.2f}, the ceiling is {ceiling:.2f}"
    margin = TOLERANCE * abs(ceiling - survey.subject.floor)
    # The bounds of the scores are unknown; the lowest and highest score of the whole check take their place.
    every = [*_scores(tuple(survey.everything)), ceiling - 1.0, ceiling + 1.0]
    below = p_value_mean_above([-score for score in scores], margin - ceiling, -max(every))
    above = p_value_mean_above(scores, ceiling + margin, min(every))
    if below < ALPHA / 2:
        return failed(summary, f"The oracle scores less than the declared ceiling {_SURE}. Repair oracle(), or lower ceiling.")
    if above < ALPHA / 2:
        return failed(summary, f"The oracle scores more than the declared ceiling {_SURE}. Raise ceiling.")
    return passed(summary)


def top_reward(survey: Survey) -> float:
    """Return the highest possible reward of a step: as declared, or else the highest that occurred."""
    declared = survey.subject.reward_range[1]
    if math.isfinite(declared):
        return declared
    seen = [float(taken.step.reward) for episode in survey.ordinary if episode.score is not None for taken in episode.steps]
    return max((reward for reward in seen if reward > 0), default=1.0)


def solved(episode: PlayedEpisode, top: float) -> bool:
    """Whether the episode solved its task, by ``info["success"]`` or else by the highest reward on the last step."""
    if not episode.ended or episode.score is None:
        return False
    last = episode.steps[-1].step
    info: Any = last.info
    verdict = dict.get(info, "success") if isinstance(info, dict) else None
    # Another type is no verdict: the check "info" or "rollout" reports it.
    return bool(verdict) if type(verdict) in (bool, int, float, np.bool_) else last.reward >= top


def blind_answers_fail(survey: Survey) -> Verdict:
    """Players that send empty or garbage actions score no more than the declared floor."""
    means = {}
    for name in ("empty", "garbage"):
        scores = _scores(survey.by(name))
        if not scores:
            return skipped(f"{name} actions could not be scored")
        if _beats(survey, scores, survey.subject.floor, ALPHA / 2):
            return failed(
                f"{name} actions score {_mean(scores):.2f}",
                f"The mean over {len(scores)} tasks is {_mean(scores):.3f}, the declared floor is {survey.subject.floor:g} "
                f"{_SURE}. Pay no reward for a text that is not an answer.",
            )
        means[name] = _mean(scores)
    if f"{means['empty']:.2f}" == f"{means['garbage']:.2f}":
        return passed(f"empty and garbage actions score {means['empty']:.2f}")
    return passed(f"empty actions score {means['empty']:.2f}, garbage {means['garbage']:.2f}")


def random_plays(survey: Survey) -> Verdict:
    """The policy ``random`` can play: the environment has ``sample_random_action``."""
    if not survey.by("random"):
        return skipped("no sample_random_action(): the policy random cannot play")
    scores = _scores(survey.by("random"))
    if not scores:
        return skipped("random actions could not be scored")
    return passed(f"random actions score {_mean(scores):.2f}")


def constant_answer_fails(survey: Survey) -> Verdict:
    """A common answer of some tasks, given to the other tasks, scores no more than the declared floor."""
    if not survey.constants:
        return skipped("no oracle() and no random actions, so there is no answer to repeat")
    floor = survey.subject.floor
    scored = [(constant.action, scores) for constant in survey.constants if (scores := _scores(constant.episodes))]
    if not scored:
        return skipped("no constant answer could be scored")
    for action, scores in scored:
        if _beats(survey, scores, floor, ALPHA / len(survey.constants)):
            return _blame_constant(survey, action, scores)
    action, scores = max(scored, key=lambda constant: _mean(constant[1]))
    if _beats(survey, scores, floor, SUSPICION):
        return _suspect_constant(survey, action, scores)
    return passed(f"a constant answer scores {_mean(scores):.2f}")


def _suspect_constant(survey: Survey, action: str, scores: Sequence[float]) -> Verdict:
    floor, tasks = survey.subject.floor, len(survey.subject.tasks)
    return warned(
        f"a constant answer scores {_mean(scores):.2f}, the floor is {floor:g}: not certain with {tasks} tasks, try "
        f"-n {max(1000, 5 * tasks)}",
        f"'{shown(action)}' scores {_mean(scores):.3f} on {len(scores)} tasks. Chance may explain it. More tasks tell (a slow "
        f"environment also needs a higher --seconds).",
    )


def _blame_constant(survey: Survey, action: str, scores: Sequence[float]) -> Verdict:
    mean = _mean(scores)
    finding = f"a constant answer scores {mean:.2f}"
    detail = (
        f"'{shown(action)}' scores {mean:.3f} on {len(scores)} tasks, the declared floor is {survey.subject.floor:g} {_SURE}. "
        f"A policy that always gives this answer gets a high score without solving the task. "
    )
    outcomes = _outcomes(survey)
    if outcomes and _is_chance(survey, scores, 1 / outcomes):
        chance = f"{1 / outcomes:.2g}"
        return failed(
            f"{finding}: with {_WORDS[outcomes]} outcomes chance is {chance} (declare floor={chance} or ask for more)",
            f"{detail}Make all answers equally frequent, ask for more than one answer, or declare the score of guessing as "
            f"floor.",
        )
    oracle = _scores(survey.by("oracle"))
    if oracle and _mean(oracle) - mean <= TOLERANCE * abs(_mean(oracle) - survey.subject.floor):
        return failed(f"{finding}, as much as the oracle", f"{detail}All tasks have the same answer: draw it from self.rng.")
    return failed(
        f"{finding}: some answers are too common",
        f"{detail}Make all answers equally frequent, or ask for more in one answer. Only if that is impossible, declare what "
        f"answering blindly pays: floor={math.ceil(mean * 100) / 100:g}.",
    )


def _outcomes(survey: Survey) -> int:
    """Return the number of different answers if one of a few answers decides the whole episode; otherwise 0."""
    oracle = survey.by("oracle")
    if not oracle or any(len(episode.actions) != 1 for episode in oracle):
        return 0
    outcomes = len({episode.actions[0] for episode in oracle})
    return outcomes if 1 < outcomes < len(_WORDS) else 0


def _is_chance(survey: Survey, scores: Sequence[float], chance: float) -> bool:
    """Whether the true mean of these scores may be ``chance``: they differ significantly neither upward nor downward."""
    top = max(_scores(tuple(survey.everything)), default=1.0)
    below = p_value_mean_above([-score for score in scores], TOLERANCE - chance, -max(top, chance + 1.0))
    return not _beats(survey, scores, chance, ALPHA) and below >= ALPHA


_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def _beats(survey: Survey, scores: Sequence[float], floor: float, alpha: float) -> bool:
    oracle = _scores(survey.by("oracle"))
    way = _mean(oracle) - floor if oracle else 1.0
    threshold = floor + TOLERANCE * (way if way > 0 else 1.0)
    # The lowest possible score is unknown; the lowest score of the whole check takes its place.
    lowest = min(_scores(tuple(survey.everything)), default=floor)
    return p_value_mean_above(scores, threshold, min(floor, lowest)) < alpha


def _scores(episodes: Sequence[PlayedEpisode]) -> list[float]:
    scores = [episode.score for episode in episodes]
    return [score for score in scores if score is not None]


def _mean(scores: Sequence[float]) -> float:
    return fsum(scores) / len(scores)
