"""The same task gives the same episode: in this process, in another one, on replay, whatever the global generators hold."""

import random
from contextlib import ExitStack

import numpy as np

from palestra.checking.elsewhere import HASH_SEEDS, Elsewhere, play_elsewhere
from palestra.checking.episodes import Episode, as_scripted, difference, global_generators, play
from palestra.checking.report import Verdict, failed, passed, shown, skipped
from palestra.checking.subject import closing_quietly
from palestra.checking.survey import Survey
from palestra.errors import UsageError

__all__ = ["global_generators_unused", "same_elsewhere", "same_here", "same_on_replay"]

_SAME = "same task, same episode"
_FEW = 20
"""Tasks for the checks where a fault does not hide in single tasks."""


def same_here(survey: Survey) -> Verdict:
    """Two fresh instances, and one instance that has played other tasks, give the same episode for the same task."""
    subject = survey.subject
    with closing_quietly(subject.make()) as veteran:
        for first in survey.driven:
            again = {
                "a fresh instance": subject.play(first.task, first.actor),
                "an instance that had played other tasks": subject.play(first.task, first.actor, env=veteran),
                "an instance that had played this task just before": subject.play(first.task, first.actor, env=veteran),
            }
            for where, second in again.items():
                if parted := difference(first.frames, second.frames):
                    return failed(
                        f"the same task gave two episodes in one process (task seed {first.task.seed})",
                        f"Played twice by {first.actor}, the second time on {where}: {parted}. Draw everything from self.rng "
                        f"(not from the clock, id() or a module's state) and set every attribute of an episode in reset().",
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
        return skipped("not tried in another process: it was registered by hand, with what cannot be sent there")
    for hash_seed, elsewhere in zip(HASH_SEEDS, seen, strict=True):
        if verdict := _judge(elsewhere, survey.driven, hash_seed):
            return verdict
    return passed(f"{_SAME} (another process, another hash seed)")


def _judge(elsewhere: Elsewhere, driven: tuple[Episode, ...], hash_seed: int) -> Verdict | None:
    if elsewhere.error:
        return failed(
            "it does not run in another process",
            f"A new interpreter that was to play the same tasks said: {shown(elsewhere.error, 400)}. An environment must be "
            f"importable by its name, with nothing prepared by hand.",
        )
    for episode, frames in zip(driven, elsewhere.episodes, strict=True):
        if parted := difference(episode.frames, frames):
            return failed(
                f"another process gave another episode (task seed {episode.task.seed}, PYTHONHASHSEED={hash_seed})",
                f"Played by {episode.actor}: {parted}. Most often the order of a set: sort it before it is shown or drawn "
                f"from. hash() of a text also changes from process to process.",
            )
    return None


def same_on_replay(survey: Survey) -> Verdict:
    """The recorded actions give the recorded episode, with no player asked, or with random actions drawn in between."""
    subject = survey.subject
    draws = (False, True) if subject.has_random else (False,)
    for first in survey.driven:
        for draw in draws if first.actions else ():
            act = as_scripted(first.actions, draw=draw)
            second = subject.play(first.task, first.actor, act, turns=len(first.actions))
            if parted := difference(first.frames, second.frames):
                how = "with random actions drawn and thrown away in between" if draw else f"without asking {first.actor}"
                return failed(
                    f"the recorded actions gave another episode (task seed {first.task.seed})",
                    f"Replayed {how}: {parted}. Asking for an action must not change the game: sample_random_action() draws "
                    f"from self.action_rng, never from self.rng, and oracle() changes nothing.",
                )
    return passed(f"{_SAME} (replay)")


def global_generators_unused(survey: Survey) -> Verdict:
    """The global generators are the same after an episode, and the episode is the same whatever they hold."""
    for first in survey.driven[:_FEW]:
        second, disturbed = _play_watched(survey, first)
        if disturbed:
            return failed(
                f"an episode changes the global generator of {disturbed} (task seed {first.task.seed})",
                f"Episodes that run side by side in one process then change each other. {_OWN_GENERATOR}",
            )
        if parted := difference(first.frames, second.frames):
            return failed(
                f"the episode depends on a global generator (task seed {first.task.seed})",
                f"With random and numpy.random seeded otherwise, {parted}. {_OWN_GENERATOR}",
            )
    return passed("global generators left alone")


_OWN_GENERATOR = "Draw from self.rng, and hand a library that insists on a seed one that was drawn from it."


def _play_watched(survey: Survey, first: Episode) -> tuple[Episode, str]:
    """The same episode from another state of the global generators, and the name of the one it changed."""
    subject = survey.subject
    act = subject.actor(first.actor, first.task)
    with global_generators(1), ExitStack() as clean_up:
        before = _states()
        second = play(
            lambda: clean_up.enter_context(closing_quietly(subject.make())),
            first.task,
            act,
            lambda info: subject.turn_limit(info, first.actor),
        )
        after = _states()
    return second, next((name for name, state in after.items() if state != before[name]), "")


def _states() -> dict[str, object]:
    legacy = np.random.get_state(legacy=True)
    return {
        "random": random.getstate(),
        "numpy.random": tuple(part.tobytes() if isinstance(part, np.ndarray) else part for part in legacy),
    }
