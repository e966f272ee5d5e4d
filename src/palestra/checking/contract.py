"""Checks of what every reset, step, fork and close must do."""

import math
from collections.abc import Callable
from contextlib import ExitStack
from numbers import Real
from typing import Any

import numpy as np

from palestra import registry
from palestra.adapters import as_async
from palestra.checking.episodes import PlayedEpisode, PlayedStep, as_scripted, difference, global_generators, told
from palestra.checking.report import Verdict, failed, passed, shown, skipped, warned
from palestra.checking.shelter import keep_interrupt
from palestra.checking.subject import Subject, closing_quietly
from palestra.checking.survey import Survey
from palestra.core import AsyncEnv, Conversation, Env, Step
from palestra.errors import EpisodeOver
from palestra.foundation.encoding import encode_json
from palestra.foundation.encoding import shown as safely_shown
from palestra.rollouts.episode import EpisodeKey, run_episode
from palestra.trajectory import Completion, Image, Task, Text

__all__ = [
    "any_text_survives",
    "close_harmless",
    "ends_in_time",
    "episodes_run",
    "fork_independent",
    "info_writable",
    "observations_are_content",
    "one_end_only",
    "render_shows",
    "rewards_in_range",
    "rollout_accepts",
    "steps_refused_outside",
]

_FEW = 10
"""Tasks for checks whose faults show in every task."""


def episodes_run(survey: Survey) -> Verdict:
    """Building, resetting and playing raise no exception, and ``reset`` calls ``super().reset(seed=seed, task=task)``."""
    introduction = survey.subject.introduction
    if not introduction.begins:
        return failed(
            "reset() does not call super().reset(seed=seed, task=task)",
            "Call it first. It stores the task (palestra gives it as task=, with seed=None) and creates self.rng, the "
            "generator of this task. Repair this first; the other checks need it.",
        )
    for episode in survey.ordinary:
        # Without random actions and an oracle, the ordinary player sends garbage; the check "any-text" covers steps that fail
        # on it.
        if episode.error and not (episode.actor == "garbage" and episode.error.startswith("turn")):
            return failed(
                f"an episode raised (task seed {episode.task.seed}, played by {episode.actor})",
                f"At {episode.error}. Expected an episode as in the contract: reset(seed=, task=) -> (observation, info), then "
                f"step(action) -> Step. Repair this first; the other checks need it.",
            )
    if introduction.error:
        return failed(
            "a reset raised, although others of the same task did not",
            f"{introduction.error}. Repair this first; the other checks need it.",
        )
    return passed(f"{len(survey.ordinary)} episodes run ({', '.join(survey.subject.drivers)})")


def any_text_survives(survey: Survey) -> Verdict:
    """A step with any text returns, within one second of CPU time."""
    for name, episode in [(thrown.name, thrown.episode) for thrown in survey.hostile]:
        if episode.error:
            return failed(
                f"{name}: the step raised",
                f"Task seed {episode.task.seed}, {episode.error}. A model may send malformed text at any time: return a step "
                f"for it (for instance with a low reward, and terminated), do not raise.",
            )
    for thrown in survey.hostile:
        if thrown.seconds > survey.patience:
            return failed(
                f"{thrown.name}: the step took {thrown.seconds:.1f} s",
                f"Expected at most {survey.patience:g} s. A parser whose time grows faster than the text stops every episode "
                f"of the process: parse the text in one pass, or reject long texts.",
            )
    return passed(f"survives {len(survey.hostile)} hostile texts, up to 1 MB")


def steps_refused_outside(survey: Survey) -> Verdict:
    """A step before the first reset, or after the end, raises ``EpisodeOver``."""
    subject = survey.subject
    ended = next((episode for episode in survey.driven if episode.ended), None)
    with closing_quietly(subject.make()) as env:
        if (got := _raised_by(lambda: env.step(""))) != EpisodeOver.__name__:
            return _not_refused("before the first reset", got)
        if ended is None:
            return skipped("no episode ended, so no step after the end was tried")
        subject.play(ended.task, "replay", as_scripted(ended.actions), env=env, turns=len(ended.actions))
        if (got := _raised_by(lambda: env.step(""))) != EpisodeOver.__name__:
            return _not_refused("after the end", got)
    return passed("steps outside an episode raise EpisodeOver")


def _not_refused(when: str, got: str) -> Verdict:
    return failed(
        f"a step {when} does not raise EpisodeOver", f"Got {got or 'a step'}. Create the environment with palestra.make()."
    )


def _raised_by(call: Callable[[], object]) -> str:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - an author's code may raise anything
        keep_interrupt()
        return type(error).__name__
    return ""


def close_harmless(survey: Survey) -> Verdict:
    """``close`` may be called without a reset, in the middle of an episode, after the end, and twice."""
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
                    _close_author(subject, env.unwrapped)
                except BaseException as error:  # noqa: BLE001 - an author's code may raise anything
                    keep_interrupt()
                    return failed(
                        f"close() raised, called{times} {when}",
                        f"{told(error)}. close() must work after any failure: release what the environment holds, and do "
                        f"nothing on a second call.",
                    )
        finally:
            with closing_quietly(env):
                pass
    return passed("close raises nothing (without reset, in mid-episode, twice)")


def render_shows(survey: Survey) -> Verdict:
    """``render``, if the class has it, returns text after the reset and after every step, and changes nothing."""
    subject = survey.subject
    if not callable(getattr(subject.author, "render", None)):
        return skipped("no render()")
    for episode in survey.driven[:_FEW]:
        with global_generators(0), closing_quietly(subject.make()) as env:
            env.reset(task=episode.task)
            for turn in range(len(episode.actions) + 1):
                where = f"after turn {turn}" if turn else "after the reset"
                if wrong := _render_fault(env.unwrapped):
                    return failed(
                        f"render() {wrong} {where} (task seed {episode.task.seed})",
                        "Expected the current state as text (HTML for people), in every state of an episode, also in one "
                        "that has nothing to show.",
                    )
                if turn == len(episode.actions):
                    break
                frame = PlayedStep(episode.actions[turn], Step(*env.step(episode.actions[turn]))).frame
                if parted := difference(episode.frames[turn + 1 : turn + 2], [frame], first_turn=turn + 1):
                    return failed(
                        f"render() changes the episode (task seed {episode.task.seed})",
                        f"Without render(), {parted}. render() must only read the state.",
                    )
    return passed("render shows every state")


def _render_fault(author: Any) -> str:
    try:
        picture = author.render()
    except BaseException as error:  # noqa: BLE001 - an author's code may raise anything
        keep_interrupt()
        return f"raised {told(error)}"
    return "" if isinstance(picture, str) else f"returned a {type(picture).__name__}"


def _close_author(subject: Subject, author: Env | AsyncEnv) -> None:
    """Call the author's own ``close``. The object that ``make`` returns calls it only once and would hide a second call."""
    if isinstance(author, Env):
        subject.shelter.call("close", author.close)
    else:
        subject.shelter.run("close", author.close())


# --------------------------------------------------------------------------------------------------------------- rollout


class _Fresh:
    """Makes the environment of an episode in this process."""

    def __init__(self, id: str) -> None:
        self._id = id

    async def acquire(self, task: Task) -> AsyncEnv:
        return as_async(registry.make(self._id))

    async def give_back(self, task: Task, env: AsyncEnv, *, sound: bool) -> None:
        await env.close()


class _Replay:
    """A policy that repeats ``actions``, whichever player acts."""

    name = "replay"

    def __init__(self, actions: tuple[str, ...]) -> None:
        self._left = list(actions)

    async def act(self, conversation: Conversation) -> Completion:
        return Completion(self._left.pop(0) if len(self._left) > 1 else self._left[0])


def rollout_accepts(survey: Survey) -> Verdict:
    """An episode of a rollout does not fail: it accepts what reset and step return, such as players and payments."""
    subject = survey.subject
    driven = [episode for episode in survey.driven[:_FEW] if episode.ended]
    if not driven:
        return skipped("no episode ended, so none was played by a rollout")
    for number, episode in enumerate(driven):
        key = EpisodeKey(episode.task, seed=subject.seed, group=number)
        playing = run_episode(_Fresh(subject.spec.id), _Replay(episode.actions), key, deadline=subject.shelter.seconds)
        with global_generators(0):
            played = subject.shelter.run_guarded(playing)
        for failure in (failure for trajectory in played for failure in trajectory.failures):
            return failed(
                f"an episode of a rollout fails (task seed {episode.task.seed})",
                f"In {failure.phase.value}, {failure.kind}: {shown(failure.message, 400)}. Rollouts, evaluations and training "
                f"count such an episode as failed, without a score.",
            )
    return passed("rollouts accept every episode")


# ------------------------------------------------------------------------------------------------------------------ fork


def fork_independent(survey: Survey) -> Verdict:
    """A fork continues as the original would, and neither changes the other."""
    if not survey.subject.has_fork:
        return skipped("no fork()")
    for number, driven in enumerate(survey.driven[:_FEW]):
        for fork_first in (True, False):
            if parted := _fork_parts(survey.subject, driven, number, fork_first=fork_first):
                return failed(
                    f"a fork and its original are not independent (task seed {driven.task.seed})",
                    f"{parted}. A fork must not share mutable state, including the generator. For plain state, "
                    f"return copy.deepcopy(self).",
                )
    return passed("a fork is independent")


def _fork_parts(subject: Subject, driven: PlayedEpisode, number: int, *, fork_first: bool) -> str:
    """Fork in the middle of an episode, finish both copies in turn, and return where one differs from a plain replay."""
    actions = driven.actions
    replay = subject.play(driven.task, "replay", as_scripted(actions), turns=len(actions))
    cut = number % max(1, len(actions))
    with global_generators(0), ExitStack() as clean_up:
        try:
            env = clean_up.enter_context(closing_quietly(subject.make()))
            env.reset(task=driven.task)
            for action in actions[:cut]:
                env.step(action)
            copies = {"the fork": clean_up.enter_context(closing_quietly(env.fork())), "the original": env}
            for name in copies if fork_first else reversed(copies):
                frames = [PlayedStep(action, Step(*copies[name].step(action))).frame for action in actions[cut:]]
                if parted := difference(replay.frames[cut + 1 :], frames, first_turn=cut + 1):
                    order = "continued first" if (name == "the fork") == fork_first else "continued after the other"
                    return f"{name.capitalize()}, {order}, differs from the episode without a fork: {parted}"
        except BaseException as error:  # noqa: BLE001 - an author's code may raise anything
            keep_interrupt()
            return f"Forked after {cut} turns, the environment raised {told(error)}"
    return ""


# --------------------------------------------------------------------------------------------------- results of reset and step


def info_writable(survey: Survey) -> Verdict:
    """Every ``info`` is a dict of plain values, which JSON represents exactly."""
    for episode in survey.writable:
        for where, info in [("reset", episode.info), *_each(episode, lambda step: step.info)]:
            if (wrong := _not_writable(info)) and not _nothing_to_see(episode, where):
                return failed(
                    f"info of {where} is not plain (task seed {episode.task.seed})",
                    f"{wrong}. info is written to disk and sent over the network: use plain values (text, numbers, booleans, "
                    f"None, lists, dicts with text keys). float(x), int(x) and sorted(x) return plain values.",
                )
    return passed("info holds plain values")


def _nothing_to_see(episode: PlayedEpisode, where: str) -> bool:
    return where == "reset" and episode.error.startswith(("building", "reset"))


def _not_writable(info: Any) -> str:
    if not isinstance(info, dict):
        return f"It is a {type(info).__name__}, expected a dict"
    # The methods of the built-in type: those of a subclass are the author's.
    for key, value in dict.items(info):
        if not isinstance(key, str):
            return f"It has the key {safely_shown(key)}, expected text"
        try:
            if strange := _not_plain(value):
                return f"info[{safely_shown(key)}] {strange}"
            encode_json({key: value})
        except BaseException as error:  # noqa: BLE001 - a stranger's object may raise anything
            keep_interrupt()
            return f"info[{safely_shown(key)}]: {told(error)}"
    return ""


def _not_plain(value: Any, depth: int = 50) -> str:
    """Describe what in ``value`` JSON would change; empty if nothing."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"holds {value}, which JSON cannot represent"
    if isinstance(value, str | int | float | None) and not isinstance(value, np.generic):
        return ""
    if not depth or not isinstance(value, list | tuple | dict):
        return f"holds a {type(value).__name__}" if depth else "is nested too deep, or holds itself"
    if isinstance(value, dict) and (keys := [key for key in value if not isinstance(key, str)]):
        return f"holds a dict with the key {shown(repr(keys[0]))}, expected text"
    inner = value.values() if isinstance(value, dict) else value
    return next((strange for item in inner if (strange := _not_plain(item, depth - 1))), "")


def observations_are_content(survey: Survey) -> Verdict:
    """Every observation is text, or a tuple of ``Text`` and ``Image``, that a file can hold."""
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
    except BaseException as error:  # noqa: BLE001 - a stranger's object may raise anything
        keep_interrupt()
        return f"It cannot be written to a file: {told(error)}"
    return ""


def one_end_only(survey: Survey) -> Verdict:
    """``terminated`` and ``truncated`` are booleans and never both true."""
    for episode in survey.everything:
        for where, (terminated, truncated) in _each(episode, lambda step: (step.terminated, step.truncated)):
            if not all(isinstance(flag, bool | np.bool_) for flag in (terminated, truncated)):
                return failed(
                    f"{where} has flags that are not booleans (task seed {episode.task.seed})",
                    f"Got terminated={safely_shown(terminated)}, truncated={safely_shown(truncated)}. Step is (observation, "
                    f"reward, terminated, truncated, info), in this order.",
                )
            if terminated and truncated:
                return failed(
                    f"{where} is both terminated and truncated (task seed {episode.task.seed}, {episode.actor})",
                    "terminated means that the task itself ended, truncated that a limit cut the episode. Training values the "
                    "future after a truncation, not after a termination: set one of them.",
                )
    return passed("never both terminated and truncated")


def rewards_in_range(survey: Survey) -> Verdict:
    """Every reward is a finite number inside ``reward_range``, and every episode's sum of rewards inside ``score_range``."""
    low, high = survey.subject.reward_range
    least, most = survey.subject.score_range
    for episode in survey.everything:
        total = 0.0
        for where, reward in _each(episode, lambda step: step.reward):
            number = _finite(reward)
            if number is None or not low - 1e-9 <= number <= high + 1e-9:
                return failed(
                    f"{where} has the reward {safely_shown(reward)} (task seed {episode.task.seed}, {episode.actor})",
                    f"Expected a finite float between {low:g} and {high:g}, as reward_range declares. Correct the reward, or "
                    f"the declaration.",
                )
            total += number
        if not least - 1e-9 <= total <= most + 1e-9:
            return failed(
                f"the rewards of an episode add up to {total:g} (task seed {episode.task.seed}, {episode.actor})",
                f"Expected a sum between {least:g} and {most:g}, as score_range declares. Correct the rewards, or the "
                f"declaration.",
            )
    if math.isinf(high):
        return passed("rewards are finite")
    return passed(f"rewards stay inside [{low:g}, {high:g}]")


def _finite(reward: Any) -> float | None:
    """``reward`` as a float; ``None`` if it is no finite number."""
    try:
        number = float(reward) if isinstance(reward, Real) else math.nan
    except BaseException:  # noqa: BLE001 - a stranger's object may raise anything
        keep_interrupt()
        return None
    return number if math.isfinite(number) else None


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
                f"an episode continued after {declared} turns (task seed {episode.task.seed}, {episode.actor})",
                f"max_turns={declared} is declared. End the episode there with truncated=True, or declare another limit.",
            )
        if not episode.ended and not episode.error:
            endless = episode
    if endless is not None:
        return warned(
            f"an episode did not end in {len(endless.steps)} turns (task seed {endless.task.seed}, {endless.actor})",
            "No max_turns is declared. Declare max_turns = N on the class, in register(), or in the info of reset().",
        )
    if not declared_any:
        return skipped("no max_turns declared; every episode ended by itself")
    return passed("episodes end within max_turns")


def _each(episode: PlayedEpisode, part: Callable[[Step], Any]) -> list[tuple[str, Any]]:
    return [(f"turn {number}", part(taken.step)) for number, taken in enumerate(episode.steps, 1)]
