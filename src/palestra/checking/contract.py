"""What every reset, step, fork and close must keep to."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from numbers import Real
from typing import Any

import numpy as np

from palestra.checking.episodes import Episode, Taken, as_scripted, difference, global_generators, told
from palestra.checking.report import Verdict, failed, passed, skipped, warned
from palestra.checking.subject import Subject, closing_quietly
from palestra.checking.survey import Survey
from palestra.core import AsyncEnv, Env, Step
from palestra.encoding import encode_json
from palestra.errors import EpisodeOver
from palestra.trajectory import Image, Text
from palestra.views import LoopThread

__all__ = [
    "any_text_survives",
    "close_harmless",
    "ends_in_time",
    "episodes_run",
    "fork_independent",
    "info_writable",
    "observations_are_content",
    "one_end_only",
    "rewards_in_range",
    "steps_refused_outside",
]

_FEW = 10
"""Tasks for the checks where a fault does not hide in single tasks."""


def episodes_run(survey: Survey) -> Verdict:
    """Building, resetting and playing properly raise nothing."""
    for episode in survey.ordinary:
        # Where nobody can play properly, garbage has to do, and what that may do to a step is another check's business.
        if episode.error and not (episode.actor == "garbage" and episode.error.startswith("turn")):
            return failed(
                f"an episode raised (task seed {episode.task.seed}, played by {episode.actor})",
                f"At {episode.error}. Expected an episode of the contract: reset(seed=, task=) -> (observation, info), then "
                f"step(action) -> Step. Repair this first; the other checks need it.",
            )
    return passed(f"{len(survey.ordinary)} episodes run ({', '.join(survey.subject.drivers)})")


def any_text_survives(survey: Survey) -> Verdict:
    """Whatever the model writes is answered by a step, within a second."""
    for name, episode in [(thrown.name, thrown.episode) for thrown in survey.hostile]:
        if episode.error:
            return failed(
                f"{name}: the step raised",
                f"Task seed {episode.task.seed}, {episode.error}. A malformed action is the model's mistake and not an "
                f"exception: answer it with a step (for instance a low reward and the end).",
            )
    for thrown in survey.hostile:
        if thrown.seconds > survey.patience:
            return failed(
                f"{thrown.name}: the step took {thrown.seconds:.1f} s",
                f"Expected {survey.patience:g} s at most. A parser whose cost grows faster than the text stalls every episode "
                f"of the process: read the text in one pass, or refuse long ones.",
            )
    return passed(f"survives {len(survey.hostile)} hostile texts, to 1 MB")


def steps_refused_outside(survey: Survey) -> Verdict:
    """A step before the first reset, or after the end, raises ``EpisodeOver``."""
    subject = survey.subject
    ended = next((episode for episode in survey.driven if episode.ended), None)
    with closing_quietly(subject.make()) as env:
        if (got := _raised_by(lambda: env.step(""))) != EpisodeOver.__name__:
            return _not_refused("before the first reset", got)
        if ended is None:
            return skipped("no episode ended, so a step after the end could not be tried")
        subject.play(ended.task, "replay", as_scripted(ended.actions), env=env, turns=len(ended.actions))
        if (got := _raised_by(lambda: env.step(""))) != EpisodeOver.__name__:
            return _not_refused("after the end", got)
    return passed("steps outside an episode are refused")


def _not_refused(when: str, got: str) -> Verdict:
    return failed(
        f"a step {when} is not refused", f"Expected EpisodeOver, got {got or 'a step'}. Let make() guard the environment."
    )


def _raised_by(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return ""


def close_harmless(survey: Survey) -> Verdict:
    """``close`` can be called without a reset, in the middle of an episode, after the end, and twice."""
    subject = survey.subject
    episode = survey.driven[0]
    for when, turns in {"without a reset": None, "after a reset": 0, "after the end": len(episode.actions)}.items():
        env = subject.make()
        try:
            if turns is not None:
                env.reset(task=episode.task)
            for action in episode.actions[: turns or 0]:
                env.step(action)
            for times in ("", " a second time"):
                try:
                    _close_author(env.unwrapped)
                except Exception as error:
                    return failed(
                        f"close() raised, called{times} {when}",
                        f"{told(error)}. Clean-up runs whatever happened before: free what is held, forget it, and let a "
                        f"second call do nothing.",
                    )
        finally:
            with closing_quietly(env):
                pass
    return passed("close is harmless (without reset, in mid-episode, twice)")


def _close_author(author: Env | AsyncEnv) -> None:
    """Call the author's own ``close``; what ``make`` gives calls it once and would hide a second one."""
    if isinstance(author, Env):
        author.close()
        return
    thread = LoopThread.hold()  # the loop it was reset on, if it was: the one of this process
    try:
        thread.run(author.close())
    finally:
        thread.release()


# ------------------------------------------------------------------------------------------------------------------ fork


def fork_independent(survey: Survey) -> Verdict:
    """A fork goes on as the original would, and neither changes the other."""
    if not survey.subject.has_fork:
        return skipped("no fork()")
    for place, driven in enumerate(survey.driven[:_FEW]):
        for fork_first in (True, False):
            if parted := _fork_parts(survey.subject, driven, place, fork_first=fork_first):
                return failed(
                    f"a fork and its original are not independent (task seed {driven.task.seed})",
                    f"{parted}. A fork must share nothing that changes, its generator included: copy.deepcopy(self) is a good "
                    f"fork for plain state.",
                )
    return passed("a fork is independent")


def _fork_parts(subject: Subject, driven: Episode, place: int, *, fork_first: bool) -> str:
    """Fork somewhere in the episode and finish both copies, one after the other: where one parts from a plain replay."""
    actions = driven.actions
    whole = subject.play(driven.task, "replay", as_scripted(actions), turns=len(actions))
    cut = place % max(1, len(actions))
    with global_generators(0), ExitStack() as clean_up:
        try:
            env = clean_up.enter_context(closing_quietly(subject.make()))
            env.reset(task=driven.task)
            for action in actions[:cut]:
                env.step(action)
            copies = {"the fork": clean_up.enter_context(closing_quietly(env.fork())), "the original": env}
            for name in copies if fork_first else reversed(copies):
                frames = [Taken(action, Step(*copies[name].step(action))).frame for action in actions[cut:]]
                if parted := difference(whole.frames[cut + 1 :], frames, first_turn=cut + 1):
                    order = "played on first" if (name == "the fork") == fork_first else "played on after the other"
                    return f"{name.capitalize()}, {order}, went another way than without a fork: {parted}"
        except Exception as error:
            return f"Forked after {cut} turns, it raised {told(error)}"
    return ""


# ---------------------------------------------------------------------------------------------- what resets and steps hold


def info_writable(survey: Survey) -> Verdict:
    """Every ``info`` is a dict that can be written as JSON."""
    for episode in survey.writable:
        for where, info in [("reset", episode.info), *_each(episode, lambda step: step.info)]:
            if (wrong := _not_writable(info)) and not _nothing_to_see(episode, where):
                return failed(
                    f"info of {where} cannot be written (task seed {episode.task.seed})",
                    f"{wrong}. A trajectory keeps info, on disk and over wires: put plain values into it (text, numbers, "
                    f"lists, dicts with text keys).",
                )
    return passed("info can be written as JSON")


def _nothing_to_see(episode: Episode, where: str) -> bool:
    return where == "reset" and episode.error.startswith(("building", "reset"))


def _not_writable(info: Any) -> str:
    if not isinstance(info, dict):
        return f"It is a {type(info).__name__}, expected a dict"
    for key, value in info.items():
        try:
            encode_json({key: value})
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return f"info[{key!r}]: {told(error)}"
    return ""


def observations_are_content(survey: Survey) -> Verdict:
    """Every observation is text, or a tuple of ``Text`` and ``Image``, that can be written."""
    for episode in survey.writable:
        for where, observation in [("reset", episode.observation), *_each(episode, lambda step: step.observation)]:
            if (wrong := _not_content(observation)) and not _nothing_to_see(episode, where):
                return failed(
                    f"the observation of {where} is not content (task seed {episode.task.seed})",
                    f"{wrong}. Expected a str, or a tuple of palestra.trajectory.Text and Image.",
                )
    return passed("observations are text or images")


def _not_content(observation: Any) -> str:
    if not isinstance(observation, str | tuple):
        return f"It is a {type(observation).__name__}"
    if isinstance(observation, tuple):
        strange = [type(part).__name__ for part in observation if not isinstance(part, Text | Image)]
        if strange:
            return f"It is a tuple that holds a {strange[0]}"
    try:
        encode_json(observation)
    except ValueError as error:
        return f"It cannot be written: {told(error)}"
    return ""


def one_end_only(survey: Survey) -> Verdict:
    """``terminated`` and ``truncated`` are booleans and never both true."""
    for episode in survey.everything:
        for where, (terminated, truncated) in _each(episode, lambda step: (step.terminated, step.truncated)):
            if terminated and truncated:
                return failed(
                    f"{where} is both terminated and truncated (task seed {episode.task.seed}, {episode.actor})",
                    "The first says that there is no future to value, the second that somebody cut it off. If the task reached "
                    "an end of its own, that is terminated; a limit that strikes before is truncated.",
                )
            if not all(isinstance(flag, bool | np.bool_) for flag in (terminated, truncated)):
                return failed(
                    f"{where} has flags that are no booleans (task seed {episode.task.seed})",
                    f"Got terminated={terminated!r}, truncated={truncated!r}. Step is (observation, reward, terminated, "
                    f"truncated, info), in this order.",
                )
    return passed("never both terminated and truncated")


def rewards_in_range(survey: Survey) -> Verdict:
    """Every reward is a finite number inside ``reward_range``."""
    low, high = survey.subject.reward_range
    for episode in survey.everything:
        for where, reward in _each(episode, lambda step: step.reward):
            real = isinstance(reward, Real) and math.isfinite(reward)
            if not real or not low - 1e-9 <= reward <= high + 1e-9:
                return failed(
                    f"{where} has the reward {reward!r} (task seed {episode.task.seed}, {episode.actor})",
                    f"Expected a finite float between {low:g} and {high:g}, as reward_range declares. Correct the reward, or "
                    f"the declaration.",
                )
    if math.isinf(high):
        return passed("rewards are finite")
    return passed(f"rewards stay inside [{low:g}, {high:g}]")


def ends_in_time(survey: Survey) -> Verdict:
    """An episode ends within the ``max_turns`` that it declares."""
    subject = survey.subject
    endless = None
    declared_any = False
    for episode in survey.ordinary + survey.by("empty") + survey.by("garbage"):
        declared = subject.declared_turns(episode.info)
        declared_any = declared_any or declared is not None
        if declared is not None and len(episode.steps) > declared:
            return failed(
                f"an episode went on after {declared} turns (task seed {episode.task.seed}, {episode.actor})",
                f"max_turns={declared} is declared. End the episode there with truncated=True, or declare another limit.",
            )
        if not episode.ended and not episode.error:
            endless = episode
    if endless is not None:
        return warned(
            f"an episode did not end in {len(endless.steps)} turns (task seed {endless.task.seed}, {endless.actor})",
            "No max_turns is declared. Declare it in register() or in info of the reset, and keep to it.",
        )
    if not declared_any:
        return skipped("no max_turns declared; every episode ended by itself")
    return passed("episodes end within max_turns")


def _each(episode: Episode, part: Callable[[Step], Any]) -> list[tuple[str, Any]]:
    return [(f"turn {number}", part(taken.step)) for number, taken in enumerate(episode.steps, 1)]
