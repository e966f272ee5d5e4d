"""Make a trajectory writable: environments may put any Python object into ``info``."""

from typing import TypeVar

import msgspec

from palestra.encoding import UNWRITABLE, clean_text, encode_json, tame
from palestra.errors import EnvError
from palestra.trajectory.content import Content, Text
from palestra.trajectory.episode import StopReason, Trajectory
from palestra.trajectory.failure import Failure, Phase

__all__ = ["writable"]


def writable(trajectory: Trajectory) -> Trajectory:
    """Return ``trajectory`` itself if it can be encoded, else a copy with markers for the values that cannot.

    A live object in ``info`` does not fail the episode: the name of its type replaces it. Endless data (a dict that contains
    itself, or nesting too deep for a file) is a failure of the environment: the episode has no score.
    """
    try:
        encode_json(trajectory)
    except RecursionError:
        return _failed(trajectory, "info contains itself, or is nested too deeply to be written")
    except UNWRITABLE:
        try:
            tamed = _tamed(trajectory)
            encode_json(tamed)
        except Exception as error:  # the environment's own objects may raise anything when they are inspected
            return _failed(trajectory, f"what the environment returned cannot be written: {error!r}")
        return tamed
    return trajectory


def _tamed(trajectory: Trajectory) -> Trajectory:
    return msgspec.structs.replace(
        trajectory,
        turns=tuple(
            msgspec.structs.replace(turn, observation=_tame_content(turn.observation), info=tame(turn.info))
            for turn in trajectory.turns
        ),
        final_observation=_tame_content(trajectory.final_observation),
        info=tame(trajectory.info),
    )


def _failed(trajectory: Trajectory, problem: str) -> Trajectory:
    """Return ``trajectory`` as a failure of its environment, without the values that cannot be written."""
    stop = trajectory.stop if trajectory.stop.failed else StopReason.ERROR
    return msgspec.structs.replace(
        trajectory,
        stop=stop,
        turns=tuple(
            msgspec.structs.replace(turn, observation=_or_default(turn.observation, ""), info=_or_default(turn.info, {}))
            for turn in trajectory.turns
        ),
        final_observation=_or_default(trajectory.final_observation, ""),
        info=_or_default(trajectory.info, {}),
        failures=(*trajectory.failures, Failure.of(EnvError(problem), Phase.STEP, trajectory.attempt)),
    )


_V = TypeVar("_V")


def _or_default(value: _V, default: _V) -> _V:
    try:
        encode_json(value)
    except UNWRITABLE:
        return default
    return value


def _tame_content(content: Content) -> Content:
    if isinstance(content, str):
        return clean_text(content)
    return tuple(Text(clean_text(part.text)) if isinstance(part, Text) else part for part in content)
