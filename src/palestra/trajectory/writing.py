"""Make a trajectory writable, and check it by the schema of its reader.

A rollout checks what environments and policies return before it keeps it. The writer checks once more: a trajectory may come
from elsewhere, such as a wrapper or another program, and a line that cannot be read costs the whole file.
"""

from typing import Any, TypeVar

import msgspec

from palestra.errors import EnvError, SchemaError
from palestra.foundation.encoding import clean_text, decode_json, encode_json, tame
from palestra.trajectory.completion import Completion
from palestra.trajectory.content import Content, Text
from palestra.trajectory.episode import StopReason, Trajectory, Turn
from palestra.trajectory.failure import Failure, Phase, message_of

__all__ = ["line_of", "writable"]


def writable(trajectory: Trajectory) -> Trajectory:
    """Return ``trajectory`` itself if it can be written and read again, else a copy that can: see ``line_of``."""
    return line_of(trajectory)[1]


def line_of(trajectory: Trajectory) -> tuple[bytes, Trajectory]:
    """Return the line of JSON for ``trajectory``, and the trajectory as its reader will see it.

    A live object in ``info`` does not fail the episode: the name of its type replaces it. Anything else that a file cannot
    hold, or that its reader would refuse, is a failure of the environment: the episode has no score. What can be read is kept.
    """
    try:
        return _readable(trajectory), trajectory
    except RecursionError:
        problem = "info contains itself, or is nested too deeply to be written"
    except Exception as error:  # noqa: BLE001 - the objects of an environment may raise anything when they are inspected
        problem = f"what was played cannot be written: {message_of(error)}"
        try:
            tamed = _tamed(trajectory)
            return _readable(tamed), tamed
        except Exception as still:  # noqa: BLE001 - as above
            problem = f"what was played cannot be written: {message_of(still)}"
    for reduced in (_without_info, _without_turns):
        failed = _failed(reduced(trajectory), problem)
        try:
            return _readable(failed), failed
        except Exception as error:  # noqa: BLE001 - as above
            last = error
    raise SchemaError(f"the trajectory of {trajectory.task!r:.200} cannot be written: {message_of(last)}")


def _readable(trajectory: Trajectory) -> bytes:
    """The line for ``trajectory``, which its reader has read."""
    line = encode_json(trajectory)
    decode_json(line, Trajectory)
    return line


def _tamed(trajectory: Trajectory) -> Trajectory:
    return msgspec.structs.replace(
        trajectory,
        turns=tuple(
            msgspec.structs.replace(turn, observation=_tame_content(turn.observation), info=tame(turn.info))
            for turn in trajectory.turns
        ),
        final_observation=_tame_content(trajectory.final_observation),
        info=tame(trajectory.info),
        player=clean_text(trajectory.player),
    )


def _without_info(trajectory: Trajectory) -> Trajectory:
    """``trajectory`` with its defaults for each turn, info and observation that cannot be written and read."""
    return msgspec.structs.replace(
        trajectory,
        turns=tuple(map(_turn_or_less, trajectory.turns)),
        final_observation=_or_default(trajectory.final_observation, "", Content),
        info=_or_default(trajectory.info, {}, dict),
    )


def _turn_or_less(turn: Turn) -> Turn:
    less = msgspec.structs.replace(
        turn,
        observation=_or_default(turn.observation, "", Content),
        info=_or_default(turn.info, {}, dict),
        completion=_or_default(turn.completion, Completion(""), Completion),
    )
    return _or_default(less, msgspec.structs.replace(less, reward=0.0, act_seconds=0.0, env_seconds=0.0), Turn)


def _without_turns(trajectory: Trajectory) -> Trajectory:
    """Return the part of the episode that the scheduler itself has written."""
    of_scheduler = ("task", "stop", "failures", "seed", "group", "member", "attempt", "seconds")
    return Trajectory(**{name: getattr(trajectory, name) for name in of_scheduler})


def _failed(trajectory: Trajectory, problem: str) -> Trajectory:
    stop = trajectory.stop if trajectory.stop.failed else StopReason.ERROR
    failure = Failure.of(EnvError(problem), Phase.STEP, trajectory.attempt)
    return msgspec.structs.replace(trajectory, stop=stop, failures=(*trajectory.failures, failure))


_V = TypeVar("_V")


def _or_default(value: _V, default: _V, kind: Any) -> _V:
    try:
        decode_json(encode_json(value), kind)
    except Exception:  # noqa: BLE001 - as above
        return default
    return value


def _tame_content(content: Content) -> Content:
    if isinstance(content, str):
        return clean_text(content)
    return tuple(Text(clean_text(part.text)) if isinstance(part, Text) else part for part in content)
