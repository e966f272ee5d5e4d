"""Preference data as JSONL, in the conversational form that DPO trainers read: a prompt and two continuations.

``{"prompt": [messages], "chosen": [messages], "rejected": [messages], "margin": 0.5}``. The prompt is the first observation of
both episodes. The rest of each episode, including later observations, is the chosen or the rejected continuation. A tool result
is a message with the role ``tool``.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from palestra.errors import UsageError
from palestra.foundation.encoding import encode_json
from palestra.interchange.dialogue import messages_of
from palestra.trajectory import Message, Trajectory, text_of
from palestra.trajectory.calls import parse_results

__all__ = ["write_preferences"]


def write_preferences(pairs: Iterable[tuple[Trajectory, Trajectory]], out: Path) -> int:
    """Write pairs of (better, worse) episodes of one task, and return their number."""
    written = 0
    with open(out, "wb") as file:
        for chosen, rejected in pairs:
            file.write(encode_json(_record(chosen, rejected)) + b"\n")
            written += 1
    return written


def _record(chosen: Trajectory, rejected: Trajectory) -> dict[str, Any]:
    better, worse = (messages_of(trajectory, final=False) for trajectory in (chosen, rejected))
    start = next(i for i, message in enumerate(better) if message.role == "assistant")
    if better[:start] != worse[:start]:
        raise UsageError(f"{chosen.task.env}: the two episodes of a pair begin differently; they must be of the same task")
    assert chosen.reward is not None
    assert rejected.reward is not None
    return {
        "prompt": _chats(better[:start]),
        "chosen": _chats(better[start:]),
        "rejected": _chats(worse[start:]),
        "margin": chosen.reward - rejected.reward,
    }


def _chats(messages: Sequence[Message]) -> list[dict[str, str]]:
    chats = []
    for message in messages:
        text = text_of(message.content)
        contents = [result.full_text for result in parse_results(text)] if message.role == "tool" else [text]
        chats += [{"role": message.role, "content": content} for content in contents]
    return chats
