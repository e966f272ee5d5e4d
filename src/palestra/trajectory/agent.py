"""The record of a foreign agent besides the turns of its episode: its calls, and the branches that are not trained.

``Trajectory.segments`` holds what is trained. Replies that the agent did not use, and asides such as titles and summaries, are
in ``AgentRecord.branches``: nothing is lost, and code that trains on segments needs to know nothing about it.
"""

import hashlib
from typing import NamedTuple

import msgspec

from palestra.trajectory.segment import Segment

__all__ = ["AgentCall", "AgentRecord", "Branch", "PlayedRecord"]


class AgentCall(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One call of the agent to the model."""

    number: int
    turn: int
    """The turn of the episode during which the call was made."""
    dialect: str
    """``chat``, ``responses`` or ``anthropic``."""
    link: str
    """Where the prompt comes from: ``start``, ``extended``, ``repeated``, or the reason why it was rendered anew."""
    role: str
    """``agent``, ``auxiliary`` or ``discarded``."""
    parent: int | None = None
    """The call that it continues."""
    prompt_tokens: int = 0
    tokens: int = 0
    version: int = 0
    text: str = ""
    tools: tuple[str, ...] = ()
    """Names of the tools that the reply calls."""
    finish: str = "stop"


class Branch(msgspec.Struct, frozen=True):
    """Tokens that are not trained."""

    role: str
    segment: Segment


class AgentRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The calls of an agent in one episode."""

    calls: tuple[AgentCall, ...] = ()
    branches: tuple[Branch, ...] = ()
    links: dict[str, int] = {}
    """How many calls have each link."""
    replayed: int = 0
    """Requests that were answered from an earlier call: retries and duplicates."""
    refused: int = 0
    """Requests after the end, or above the budget."""
    overridden: dict[str, int] = {}
    """Parameter → requests whose value was replaced, because training samples from the model's own distribution."""
    ignored: dict[str, int] = {}
    """Parameter → requests that asked for an effect that the gateway does not have."""

    @property
    def timeless(self) -> "AgentRecord":
        """The record without what differs between two runs of the same episode: retries, and the order of parallel calls."""
        names: dict[int, bytes] = {}
        for call in self.calls:  # a parent stands before its children
            content = msgspec.msgpack.encode(msgspec.structs.replace(call, number=0, parent=None))
            parent = b"" if call.parent is None else names.get(call.parent, b"")
            names[call.number] = hashlib.sha256(parent + content).digest()
        ranks = {name: rank for rank, name in enumerate(sorted(set(names.values())))}
        number = {call.number: ranks[names[call.number]] for call in self.calls}
        renamed = [
            msgspec.structs.replace(
                call, number=number[call.number], parent=None if call.parent is None else number.get(call.parent)
            )
            for call in self.calls
        ]
        calls = tuple(sorted(renamed, key=lambda call: call.number))
        return msgspec.structs.replace(self, calls=calls, replayed=0, refused=0)


class PlayedRecord(NamedTuple):
    """The record of an episode that a policy returns which records by itself."""

    segments: tuple[Segment, ...] = ()
    """What is trained."""
    agent: AgentRecord | None = None
