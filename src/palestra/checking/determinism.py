"""Checks that the same task gives the same episode: here, in other processes, on replay, whatever global generators hold."""

from collections.abc import Generator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial
from typing import NamedTuple

from palestra.adapters import Guarded
from palestra.checking.culprit import Watch, watch_draws
from palestra.checking.elsewhere import HASH_SEEDS, Elsewhere, play_elsewhere
from palestra.checking.episodes import (
    PlayedEpisode,
    as_scripted,
    difference,
    generator_states,
    global_generators,
    play,
    playing,
)
from palestra.checking.report import Verdict, failed, passed, shown, skipped
from palestra.checking.subject import Subject, closing_quietly
from palestra.checking.survey import Survey
from palestra.errors import UsageError

__all__ = ["global_generators_unused", "same_elsewhere", "same_here", "same_on_replay", "same_side_by_side"]

_SAME = "same task, same episode"
_FEW = 20
"""Tasks for checks whose faults show in every task."""


def same_here(survey: Survey) -> Verdict:
    """Two fresh instances, and one instance that has played other tasks, give the same episode for the same task."""
    subject = survey.subject
    with closing_quietly(subject.make()) as veteran:
        for first in survey.driven:
            again = {
                "a fresh instance": subject.play(first.task, first.actor),
                "an instance that has played other tasks": subject.play(first.task, first.actor, env=veteran),
                "an instance that has just played this task": subject.play(first.task, first.actor, env=veteran),
            }
            for where, second in again.items():
                if parted := difference(first.frames, second.frames):
                    return failed(
                        f"the same task gave two episodes in one process (task seed {first.task.seed})",
                        f"Played twice by {first.actor}, the second time on {where}: {parted}. Draw every random number from "
                        f"self.rng, use neither the clock nor id() nor module variables, and set every attribute of an "
                        f"episode in reset().",
                    )
    return passed(f"{_SAME} (this process)")


def same_elsewhere(survey: Survey) -> Verdict:
    """Two other processes, each with another ``PYTHONHASHSEED``, give the same episodes."""
    try:
        plays = [(episode.task, episode.actor) for episode in survey.driven]
        seen = play_elsewhere(survey.subject, plays, sum(episode.seconds for episode in survey.driven))
    except UsageError as error:
        return skipped(f"not tried in another process: {error}")
    if any(elsewhere.unknown for elsewhere in seen):
        return skipped("not tried in another process: it was registered with objects that cannot be sent there")
    for hash_seed, elsewhere in zip(HASH_SEEDS, seen, strict=True):
        if verdict := _judge(elsewhere, survey.driven, hash_seed):
            return verdict
    return passed(f"{_SAME} (another process, another hash seed)")


def _judge(elsewhere: Elsewhere, driven: tuple[PlayedEpisode, ...], hash_seed: int) -> Verdict | None:
    if elsewhere.error:
        return failed(
            "the environment does not run in another process",
            f"A new interpreter that played the same tasks reported: {shown(elsewhere.error, 400)}. Another process must be "
            f"able to import the environment by its name, without any preparation.",
        )
    for episode, frames in zip(driven, elsewhere.episodes, strict=True):
        if parted := difference(episode.frames, frames):
            return failed(
                f"another process gave another episode (task seed {episode.task.seed}, PYTHONHASHSEED={hash_seed})",
                f"Played by {episode.actor}: {parted}. The usual cause is the order of a set: sort it before you show it or "
                f"draw from it. hash() of a text also differs between processes.",
            )
    return None


def same_on_replay(survey: Survey) -> Verdict:
    """The recorded actions give the recorded episode, with or without random actions sampled in between."""
    subject = survey.subject
    draws = (False, True) if subject.has_random else (False,)
    for first in survey.driven:
        for draw in draws if first.actions else ():
            act = as_scripted(first.actions, draw=draw)
            second = subject.play(first.task, first.actor, act, turns=len(first.actions))
            if parted := difference(first.frames, second.frames):
                how = "with random actions sampled in between" if draw else f"without calling {first.actor}"
                return failed(
                    f"the recorded actions gave another episode (task seed {first.task.seed})",
                    f"Replayed {how}: {parted}. Choosing an action must not change the game: sample_random_action() must draw "
                    f"from self.action_rng, not from self.rng, and oracle() must not change the environment.",
                )
    return passed(f"{_SAME} (replay)")


def same_side_by_side(survey: Survey) -> Verdict:
    """Two instances that are stepped alternately give the same episodes as each of them alone."""
    pairs = list(zip(survey.driven, survey.driven[1:], strict=False))[:_FEW]
    if not pairs:
        return skipped("needs two tasks")
    for pair in pairs:
        for alone, beside in zip(pair, _in_turns(survey.subject, pair), strict=True):
            if parted := difference(alone.frames, beside.frames):
                (other,) = (episode for episode in pair if episode is not alone)
                return failed(
                    f"instances share state: two episodes played side by side change each other (task seed {alone.task.seed})",
                    f"Played by {alone.actor}, alternately with another instance on task seed {other.task.seed}: "
                    f"{parted}. Palestra plays many episodes at once in one process. Keep the state of an episode in "
                    f"attributes of self that reset() sets, not in attributes of the class or in module variables.",
                )
    return passed("instances share no state")


def _in_turns(subject: Subject, pair: tuple[PlayedEpisode, PlayedEpisode]) -> list[PlayedEpisode]:
    """Play both episodes again: reset, reset, step, step, and so on. The one that ends first is closed at once."""
    ended: dict[int, PlayedEpisode] = {}
    with global_generators(0):
        running = [_on_a_fresh_instance(subject, episode) for episode in pair]
        while len(ended) < len(running):
            for number, episode in enumerate(running):
                if number not in ended:
                    try:
                        next(episode)
                    except StopIteration as end:
                        ended[number] = end.value
    return [ended[number] for number in range(len(running))]


def _on_a_fresh_instance(subject: Subject, episode: PlayedEpisode) -> Generator[None, None, PlayedEpisode]:
    with ExitStack() as clean_up:

        def make() -> Guarded:
            return clean_up.enter_context(closing_quietly(subject.make()))

        act = subject.actor(episode.actor, episode.task)
        return (yield from playing(make, episode.task, act, partial(subject.turn_limit, actor=episode.actor), episode.actor))


def global_generators_unused(survey: Survey) -> Verdict:
    """An episode neither changes the global generators nor depends on their state."""
    for first in survey.driven[:_FEW]:
        second, disturbed, _ = _play_watched(survey, first, nullcontext())
        if disturbed:
            return failed(
                f"an episode changes the global generator of {disturbed} (task seed {first.task.seed})",
                f"{_where(survey, first)}Episodes in one process then change each other. {_OWN_GENERATOR}",
            )
        if parted := difference(first.frames, second.frames):
            return failed(
                f"the episode depends on a global generator (task seed {first.task.seed})",
                f"{_where(survey, first)}With other seeds for random and numpy.random, {parted}. {_OWN_GENERATOR}",
            )
    return passed("global generators unused")


def _where(survey: Survey, first: PlayedEpisode) -> str:
    line = _play_watched(survey, first, watch_draws()).line
    return f"The line that draws from it: {shown(line, 200)}. " if line else ""


_OWN_GENERATOR = "Draw from self.rng. If a library needs a seed, draw the seed from self.rng."


class _Watched(NamedTuple):
    episode: PlayedEpisode
    disturbed: str
    """The module whose generator the episode changed, or empty."""
    line: str
    """The line that changed it, if it was searched for."""


def _play_watched(survey: Survey, first: PlayedEpisode, watching: AbstractContextManager[Watch | None]) -> _Watched:
    """Play the same episode from another state of the global generators."""
    subject = survey.subject
    act = subject.actor(first.actor, first.task)
    with global_generators(1), ExitStack() as clean_up:
        before = generator_states()
        with watching as watch:
            second = play(
                lambda: clean_up.enter_context(closing_quietly(subject.make())),
                first.task,
                act,
                lambda info: subject.turn_limit(info, first.actor),
            )
        after = generator_states()
    disturbed = next((name for name, state in after.items() if state != before[name]), "")
    return _Watched(second, disturbed, "" if watch is None else watch.found)
