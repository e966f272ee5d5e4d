"""A trajectory as a conversation, and a conversation as a trajectory: what the chat formats have in common.

An observation is what the user said, an action what the assistant said. A system message, which no environment has, is kept in
the trajectory's ``info`` under ``system``. Where a format has no scores, the trajectory that is read from it has none either:
it counts as not scored, not as zero.
"""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

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
    text_of,
)

__all__ = ["SYSTEM", "content_of_parts", "data_url", "image_of_url", "joined", "messages_of", "not_scored", "trajectory_of"]

SYSTEM = "system"
_DATA_URL = re.compile(r"data:([\w.+/-]+);base64,(.*)", re.DOTALL)


def messages_of(trajectory: Trajectory, *, final: bool = True) -> list[Message]:
    """The conversation of ``trajectory``; with ``final`` what the environment said last is part of it."""
    system = trajectory.info.get(SYSTEM)
    messages = [Message("system", system)] if isinstance(system, str) else []
    for turn in trajectory.turns:
        messages.append(Message("user", turn.observation))
        messages.append(Message("assistant", turn.action, turn.completion.reasoning))
    if final and trajectory.final_observation and trajectory.turns:
        messages.append(Message("user", trajectory.final_observation))
    return messages


def trajectory_of(messages: Iterable[Message], task: Task, *, policy: str = "") -> Trajectory:
    """The episode that a conversation tells of, without a score.

    What is said between two messages of the assistant is one observation. An assistant who speaks first answered nothing, and
    one who speaks twice was shown nothing in between: the observation is empty.
    """
    system: list[str] = []
    turns: list[Turn] = []
    heard: list[Content] = []
    for message in messages:
        if message.role == "system":
            system.append(text_of(message.content))
        elif message.role == "assistant":
            turns.append(Turn(joined(heard), Completion(text_of(message.content), reasoning=message.reasoning)))
            heard = []
        else:
            heard.append(message.content)
    if not turns:
        raise SchemaError(f"a conversation in which the assistant says nothing is no episode ({task.env}, seed {task.seed})")
    info = {SYSTEM: "\n\n".join(system)} if system else {}
    return not_scored(Trajectory(task, StopReason.TERMINATED, tuple(turns), final_observation=joined(heard), info=info), policy)


def not_scored(trajectory: Trajectory, policy: str = "") -> Trajectory:
    """``trajectory`` as one that nobody graded."""
    message = "the format it was read from holds no score"
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
    """Several contents as one, text by text."""
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
    """A picture as a URL that holds it."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}"


def image_of_url(url: str) -> Image | Text:
    """The picture in a data URL; of any other address only the address. Nothing is fetched."""
    found = _DATA_URL.fullmatch(url)
    if found is None:
        return Text(f"[image at {url}]")
    try:
        return Image(base64.b64decode(found[2], validate=True), found[1])
    except binascii.Error as error:
        raise SchemaError(f"a picture is not base64: {error}") from None


def content_of_parts(content: str | Sequence[Mapping[str, Any]] | None) -> Content:
    """The content of a chat API's message: text, or texts and pictures."""
    if content is None or isinstance(content, str):
        return content or ""
    parts: list[Text | Image] = []
    for part in content:
        if part.get("type") == "image_url":
            parts.append(image_of_url(part["image_url"]["url"]))
        else:
            parts.append(Text(str(part.get("text", f"[{part.get('type')}]"))))
    return "".join(text_of((part,)) for part in parts) if all(isinstance(part, Text) for part in parts) else tuple(parts)
