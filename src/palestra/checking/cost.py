"""Checks of what an environment costs other episodes: time on the event loop, and leaked resources."""

import asyncio
from collections.abc import Coroutine
from itertools import pairwise
from time import perf_counter
from typing import Any, NamedTuple

from palestra.adapters.direct import LONGEST_HOLD
from palestra.checking.episodes import PlayedEpisode, as_scripted, global_generators
from palestra.checking.report import Verdict, failed, passed, shown, skipped, warned
from palestra.checking.survey import Survey
from palestra.core import Env
from palestra.registry import make_async

__all__ = ["nothing_left_behind", "quick_or_declared"]

HEARTBEAT = 0.01
"""Seconds between two measurements of the event loop."""


def quick_or_declared(survey: Survey) -> Verdict:
    """No ``reset`` or ``step`` blocks the event loop for long, unless the class declares ``blocking = True``."""
    author = survey.subject.author
    if not isinstance(author, Env):
        return _awaits(survey)
    if author.blocking:
        return skipped("blocking = True: it runs in a worker process")
    slowest = max(survey.ordinary, key=_slowest_call)
    # On a busy machine any call can be slow once. A call that is slow by itself is slow again.
    for _ in range(2):
        if _slowest_call(slowest) <= LONGEST_HOLD:
            return passed(f"no ordinary call takes over {LONGEST_HOLD * 1000:.0f} ms")
        again = survey.subject.play(slowest.task, slowest.actor, as_scripted(slowest.actions), turns=len(slowest.actions))
        slowest = min(slowest, again, key=_slowest_call)
    verb, seconds = max(_calls(slowest), key=lambda call: call[1])
    return warned(
        f"{verb}() takes {seconds * 1000:.0f} ms (task seed {slowest.task.seed})",
        f"Expected at most {LONGEST_HOLD * 1000:.0f} ms, because every other episode of the process waits meanwhile. Set "
        f"blocking = True on the class (it then runs in a worker process), make it an AsyncEnv that awaits, or make it faster.",
    )


def _awaits(survey: Survey) -> Verdict:
    """Check that an ``AsyncEnv`` leaves the event loop free while it waits."""
    slowest = max(survey.ordinary, key=_slowest_call)
    if _slowest_call(slowest) <= LONGEST_HOLD:
        return passed(f"no ordinary call takes over {LONGEST_HOLD * 1000:.0f} ms")
    held = min((_longest_hold(survey, slowest) for _ in range(3)), key=lambda hold: hold.seconds)
    if held.seconds <= LONGEST_HOLD:
        return passed("waits without blocking the event loop")
    return warned(
        f"{held.verb}() blocks the event loop for {held.seconds * 1000:.0f} ms (task seed {slowest.task.seed})",
        f"Expected at most {LONGEST_HOLD * 1000:.0f} ms, because every other episode of the process waits meanwhile. An "
        f"AsyncEnv must await whatever takes time: asyncio.sleep instead of time.sleep, an async client instead of a blocking "
        f"one, or asyncio.to_thread(function, ...).",
    )


class _Hold(NamedTuple):
    verb: str
    seconds: float


def _longest_hold(survey: Survey, episode: PlayedEpisode) -> _Hold:
    """Play ``episode`` again and return the call that blocked the event loop for longest."""
    with global_generators(0):
        return survey.subject.shelter.run("the episode", _play_with_heartbeat(survey.subject.spec.id, episode))


async def _play_with_heartbeat(id: str, episode: PlayedEpisode) -> _Hold:
    env = make_async(id)
    holds: list[_Hold] = []
    try:
        holds.append(_Hold("reset", await _hold_of(env.reset(task=episode.task))))
        for action in episode.actions:
            holds.append(_Hold("step", await _hold_of(env.step(action))))
    finally:
        await env.close()
    return max(holds, key=lambda hold: hold.seconds)


async def _hold_of(call: Coroutine[Any, Any, object]) -> float:
    """Return the longest pause of the event loop while ``call`` runs."""
    beats = [perf_counter()]

    async def beat() -> None:
        while True:
            beats.append(perf_counter())
            await asyncio.sleep(HEARTBEAT)

    heart = asyncio.create_task(beat())
    await asyncio.sleep(0)  # the first beat
    try:
        await call
    finally:
        heart.cancel()
    beats.append(perf_counter())
    return max(later - earlier for earlier, later in pairwise(beats))


def _calls(episode: PlayedEpisode) -> list[tuple[str, float]]:
    return [("reset", episode.reset_seconds), *(("step", taken.seconds) for taken in episode.steps)]


def _slowest_call(episode: PlayedEpisode) -> float:
    return max(seconds for _, seconds in _calls(episode))


def nothing_left_behind(survey: Survey) -> Verdict:
    """After ``close``, no thread, open file or child process is left."""
    episodes = len(survey.trial.episodes) - 1
    # One resource kept for all instances is a cache; one per episode is a leak.
    left = survey.trial.left._asdict()
    leaks = {kind: sorted(things) for kind, things in left.items() if len(things) >= episodes}
    if not leaks and len(survey.trial.dropped) >= episodes:
        return warned(
            f"{episodes} episodes left {len(survey.trial.dropped)} files or sockets unclosed",
            f"Python warned: {shown(survey.trial.dropped[0], 160)}. Open files in a with block, or close them in close().",
        )
    if not leaks:
        return passed("no thread, file or process left")
    counted = " and ".join(f"{len(things)} {kind}" for kind, things in leaks.items())
    example = next(iter(leaks.values()))[0]
    return failed(
        f"{episodes} closed episodes left {counted} behind",
        f"For example {shown(example, 120)}. In close(), close what the environment opened, and stop and join what it started.",
    )
