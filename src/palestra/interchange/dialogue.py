"""Converts a trajectory to a conversation and back: the common part of the chat formats.

An observation becomes a message of the user or of tools, and an action a message of the assistant. A system message, which
environments do not have, is kept in the trajectory's ``info`` under ``system``. If a format has no scores, trajectories read
from it have none either: they count as not scored, not as zero.
"""

import base64
import binascii
import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from palestra.errors import Boundary, SchemaError
from palestra.trajectory import (
    Completion,
    Content,
    Failure,
    Image,
    Message,
    Phase,
    StopReason,
    Task,
    Text,
    Trajectory,
    Turn,
    observed,
    opening_of,
    text_of,
)

__all__ = ["SYSTEM", "content_of_parts", "data_url", "image_of_url", "joined", "messages_of", "not_scored", "trajectory_of"]

SYSTEM = "system"
_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)


def messages_of(trajectory: Trajectory, *, final: bool = True) -> list[Message]:
    """Return the conversation of ``trajectory``; with ``final``, including the final observation."""
    system = trajectory.info.get(SYSTEM)
    messages = [Message("system", system)] if isinstance(system, str) else []
    info = trajectory.info
    if info.get("player", "") == trajectory.player:
        with contextlib.suppress(ValueError):  # a file of others
            messages += opening_of(info)
    for turn in trajectory.turns:
        messages.append(observed(turn.observation, info))
        messages.append(Message("assistant", turn.action, turn.completion.reasoning))
        info = turn.info
    if final and trajectory.final_observation and trajectory.turns:
        messages.append(observed(trajectory.final_observation, info))
    return messages


def trajectory_of(messages: Iterable[Message], task: Task, *, policy: str = "") -> Trajectory:
    """Return the episode of a conversation, without a score.

    The messages between two messages of the assistant become one observation. It is empty if there are none. An observation
    that consists of tool results only is marked as such.
    """
    system: list[str] = []
    turns: list[Turn] = []
    heard: list[Message] = []
    for message in messages:
        if message.role == "system":
            system.append(text_of(message.content))
        elif message.role == "assistant":
            observation = _take(heard, turns)
            turns.append(Turn(observation, Completion(text_of(message.content), reasoning=message.reasoning)))
        else:
            heard.append(message)
    if not turns:
        raise SchemaError(
            f"the conversation has no message of the assistant, so it is not an episode ({task.env}, seed {task.seed})"
        )
    info = {SYSTEM: "\n\n".join(system)} if system else {}
    final = _take(heard, turns)
    return not_scored(Trajectory(task, StopReason.TERMINATED, tuple(turns), final_observation=final, info=info), policy)


def _take(heard: list[Message], turns: list[Turn]) -> Content:
    """Move ``heard`` into one observation. If it consists of tool results, note that in the ``info`` of the last turn."""
    messages, heard[:] = [*heard], []
    if not turns or not messages or any(message.role != "tool" for message in messages):
        return joined([message.content for message in messages])
    turns[-1] = msgspec.structs.replace(turns[-1], info={**turns[-1].info, "role": "tool"})
    return "\n".join(text_of(message.content) for message in messages)


def not_scored(trajectory: Trajectory, policy: str = "") -> Trajectory:
    """Return ``trajectory`` without a score."""
    message = "the format that it was read from has no scores"
    return Trajectory(
        trajectory.task,
        StopReason.ERROR,
        trajectory.turns,
        final_observation=trajectory.final_observation,
        info=trajectory.info,
        failures=(Failure(Boundary.GRADER, Phase.CLOSE, "NotScored", message),),
        policy=policy,
    )


def joined(contents: Sequence[Content]) -> Content:
    """Join several contents into one."""
    if len(contents) == 1:
        return contents[0]
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(text_of(content) for content in contents)
    parts: list[Text | Image] = []
    for content in contents:
        parts += [Text(content)] if isinstance(content, str) else content
    return tuple(parts)


# --------------------------------------------------------------------------------------------------------------- pictures


def data_url(image: Image) -> str:
    """Return a picture as a data URL."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def image_of_url(url: str) -> Image | Text:
    """Return the picture in a data URL; for any other URL, the URL as text. Nothing is fetched."""
    match = _DATA_URL.fullmatch(url)
    if match is None:
        return Text(f"[image at {url}]")
    try:
        return Image(base64.b64decode(match[2], validate=True), match[1])
    except binascii.Error as error:
        raise SchemaError(f"a picture is not base64: {error}") from None


def content_of_parts(content: str | Sequence[Mapping[str, Any]] | None) -> Content:
    """Convert the content of a chat API's message: text, or texts and pictures."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[Text | Image] = []
    for part in content:
        if part.get("type") == "image_url":
            parts.append(image_of_url(part["image_url"]["url"]))
        else:
            parts.append(Text(str(part.get("text", f"[{part.get('type')}]"))))
    return "".join(text_of((part,)) for part in parts) if all(isinstance(part, Text) for part in parts) else tuple(parts)
