"""Preference data as JSONL, in the conversational form that DPO trainers read: a prompt, and two ways to go on from it.

``{"prompt": [messages], "chosen": [messages], "rejected": [messages], "margin": 0.5}``. The prompt is what both episodes saw
first; the rest of each episode, with what its environment said in between, is what was chosen or rejected.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from palestra.encoding import encode_json
from palestra.errors import UsageError
from palestra.interchange.dialogue import messages_of
from palestra.trajectory import Message, Trajectory, text_of

__all__ = ["write_preferences"]


def write_preferences(pairs: Iterable[tuple[Trajectory, Trajectory]], out: Path) -> int:
    """Write pairs of (better, worse) episodes of one task; how many that were."""
    written = 0
    with open(out, "wb") as file:
        for chosen, rejected in pairs:
            file.write(encode_json(_record(chosen, rejected)) + b"\n")
            written += 1
    return written


def _record(chosen: Trajectory, rejected: Trajectory) -> dict[str, Any]:
    better, worse = (messages_of(one, final=False) for one in (chosen, rejected))
    start = next(i for i, message in enumerate(better) if message.role == "assistant")
    if better[:start] != worse[:start]:
        raise UsageError(f"{chosen.task.env}: the two episodes of a pair begin differently; they must be tries at one task")
    assert chosen.reward is not None
    assert rejected.reward is not None
    return {
        "prompt": [_message(message) for message in better[:start]],
        "chosen": [_message(message) for message in better[start:]],
        "rejected": [_message(message) for message in worse[start:]],
        "margin": chosen.reward - rejected.reward,
    }


def _message(message: Message) -> dict[str, str]:
    return {"role": message.role, "content": text_of(message.content)}
