"""The calls of an episode, and how each continues an earlier one.

Messages form a tree: a node is a conversation up to some message, and its edges are the keys of messages. A node remembers the
calls whose prompt ends there and those whose reply ends there. So the longest known prefix of a request is found by one walk.

The system text and the tools stand at the head of a prompt, before every message. They are not part of the tree: a node keeps
its calls by head. A request under another head cannot continue their ids, but the walk still shows what it continues, and so
why its prompt had to be rendered anew.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from palestra.agents.messages import AgentMessage, AgentRequest, ReplyFinish
from palestra.core import EngineSession
from palestra.foundation.encoding import Ints
from palestra.trajectory import Tokens

__all__ = ["FORKS", "Call", "CallGraph", "CallRole", "Link", "TreePosition"]

_QUOTED = 12
"""Fewest characters of a reply that count as quoted when they stand in a later message."""

_SCANNED, _SCAN = 2**24, 2**10
"""Characters that are searched for quoted replies, and those that the search for a reply costs beside its text."""

_NEAR = 5
"""A request is first looked for within this number of messages behind a known reply."""


class Link(StrEnum):
    """How the prompt of a call came about."""

    START = "start"
    """A new conversation: the first one, a sub-agent, a title."""
    EXTENDED = "extended"
    """The ids of an earlier call, continued."""
    REPEATED = "repeated"
    """The ids of an earlier prompt: the same messages are sampled from again."""
    TEMPLATE = "template"
    """Rendered anew, because the chat template rewrites the history or cannot continue it."""
    EDIT = "edit"
    """Rendered anew, because the agent changed a reply, the system text or the tools."""
    COMPACTION = "compaction"
    """Rendered anew, because the agent dropped or summarized messages."""
    UNKNOWN = "unknown"
    """Rendered anew: the conversation contains replies that this episode has not sampled."""


FORKS = (Link.TEMPLATE, Link.EDIT, Link.COMPACTION, Link.UNKNOWN)
"""The links of prompts that were rendered anew although a conversation was under way."""


class CallRole(StrEnum):
    """The purpose of a call. Found by structure, unless the agent names it."""

    AGENT = "agent"
    """It belongs to the agent's work: it is trained."""
    AUXILIARY = "auxiliary"
    """A title or a summary: trained if the recipe asks for it."""
    DISCARDED = "discarded"
    """A reply that the agent did not use, because it asked again: never trained."""


@dataclass(eq=False, slots=True)
class Call:
    """One sampled reply."""

    number: int
    dialect: str
    link: Link
    parent: "Call | None"
    """The call whose reply the prompt continues; also set for a prompt that had to be rendered anew."""
    turn: int
    head: bytes
    prompt: Ints
    digest: bytes
    """Names the prompt: equal prompts of two runs of an agent have equal digests."""
    session: EngineSession
    tools: bool
    """Whether the request offers tools."""
    named: CallRole | None = None
    """The role that the agent gave it."""
    tokens: Tokens | None = None
    usage: tuple[int, int] | None = None
    """Prompt and completion tokens as another API counts them, for a call without ids."""
    text: str = ""
    called: tuple[str, ...] = ()
    """Names of the tools that the reply calls."""
    finish: ReplyFinish = "stop"
    seconds: float = 0.0
    delivered: bool = False
    """Whether a client took the reply."""
    continued: bool = False
    """Whether a later call contains the reply."""
    quoted: bool = False
    """Whether a later call quotes the reply after a compaction."""
    siblings: list["Call"] = field(default_factory=list)
    """All calls with the same prompt, this one included, in order."""
    node: "_Node" = field(default_factory=lambda: _Node())  # noqa: PLW0108 - the class follows below
    """The conversation that the prompt ends."""


class _Node:
    """A conversation up to some message."""

    __slots__ = ("children", "prompts", "removed", "replies")

    def __init__(self) -> None:
        self.removed = False
        self.children: dict[bytes, _Node] = {}
        self.prompts: dict[bytes, list[Call]] = {}
        """Head → the calls whose prompt ends here."""
        self.replies: dict[bytes, Call] = {}
        """Head → the latest call whose reply ends here."""


class TreePosition(NamedTuple):
    """Where a request stands in the tree."""

    head: bytes
    """Digest of its system text and tools."""
    link: Link
    base: Call | None
    """The call to continue."""
    tail: Sequence[AgentMessage]
    """The messages after the reply of ``base``."""
    start: _Node
    """The longest known part of the conversation."""
    depth: int
    """The number of its messages."""
    keys: list[bytes]
    """The keys of all messages."""
    prompts: Sequence[Call]
    """The calls with the same prompt, in order."""

    @property
    def new(self) -> int:
        """The number of messages behind the known part."""
        return len(self.keys) - self.depth


def _chain(keys: list[bytes]) -> bytes:
    return hashlib.blake2b(b"".join(keys), digest_size=16).digest()


class CallGraph:
    """The calls of one episode."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        """Calls that were sampled, in the order of their ends."""
        self.links: Counter[Link] = Counter()
        self._root = _Node()
        self._replies: dict[bytes, Call] = {}
        """Key of a reply → the latest call that sampled it."""
        self._ends: dict[bytes, _Node] = {}
        """Digest of the keys of a conversation that ends with a reply → its node."""
        self._numbers = itertools.count()
        self.begun = 0
        """Calls that were begun and have not failed."""

    def position_of(self, request: AgentRequest) -> TreePosition:
        """Find the longest known prefix of ``request``, and say how its prompt can be made."""
        head = hashlib.blake2b(request.system.strip().encode() + request.offered.digest, digest_size=16).digest()
        keys = [message.key for message in request.messages]
        node, depth, base = self._recent(keys, head)
        base_depth, elsewhere = depth, False
        for key in keys[depth:]:
            child = node.children.get(key)
            if child is None:
                break
            node, depth = child, depth + 1
            call = node.replies.get(head)
            if call is not None:
                base, base_depth = call, depth
            elsewhere = elsewhere or (call is None and bool(node.replies))
        siblings = node.prompts.get(head) if depth == len(keys) else None
        if siblings:
            return TreePosition(head, Link.REPEATED, siblings[0], (), node, depth, keys, siblings)
        tail = request.messages[base_depth:]
        if base is not None and all(message.role in ("user", "tool") for message in tail):
            base.continued = True
            return TreePosition(head, Link.EXTENDED, base, tail, node, depth, keys, ())
        link = self._why(request, depth, base_depth, edited=base is None and elsewhere)
        return TreePosition(head, link, base, tail, node, depth, keys, ())

    def _recent(self, keys: list[bytes], head: bytes) -> tuple[_Node, int, Call | None]:
        """Where the walk begins: behind a reply that ends a few messages before the request does, or at the root.

        Most requests continue the latest reply. The walk from the root would take longer with every call.
        """
        for depth in range(len(keys) - 1, max(len(keys) - _NEAR, 0), -1):
            node = self._ends.get(_chain(keys[:depth]))
            if node is not None and (call := node.replies.get(head)) is not None:
                return node, depth, call
        return self._root, 0, None

    def _why(self, request: AgentRequest, depth: int, base_depth: int, *, edited: bool) -> Link:
        """Say why the prompt of ``request`` must be rendered anew; mark the replies that it contains."""
        kept = [call for message in request.messages if (call := self._replies.get(message.key)) is not None]
        for call in kept:
            call.continued = True
        if edited:
            return Link.EDIT
        if any(message.key in self._replies for message in request.messages[base_depth:]):
            return Link.COMPACTION
        if any(message.role == "assistant" for message in request.messages):
            return Link.EDIT if depth else Link.UNKNOWN
        if self._quotes(request.messages) or (0 < depth < len(request.messages)):
            return Link.COMPACTION
        return Link.START

    def _quotes(self, messages: Iterable[AgentMessage]) -> bool:
        """Whether a message quotes a reply: the summary of a compacted history. Looks for as many replies as time allows."""
        text = "\0".join(message.text for message in messages)
        quotes = False
        for call in self.calls[: -1 - _SCANNED // (len(text) + _SCAN) : -1]:
            if len(call.text) >= _QUOTED and call.text.strip() in text:
                call.quoted = quotes = True
        return quotes

    def begin(self, position: TreePosition, call: Call) -> None:
        """Enter a call whose prompt is known and whose reply is being sampled."""
        self.begun += 1
        self.links[call.link] += 1
        # A call that failed while this prompt was rendered may have taken its beginning with it.
        node, depth = (self._root, 0) if position.start.removed else (position.start, position.depth)
        for key in position.keys[depth:]:
            node = node.children.setdefault(key, _Node())
        siblings = node.prompts.setdefault(call.head, [])
        siblings.append(call)
        call.siblings = siblings
        call.node = node

    def abandon(self, position: TreePosition, call: Call) -> int:
        """Forget a call that failed before a token was recorded. Return how many of its new messages keep their place."""
        self.begun -= 1
        self.links[call.link] -= 1
        call.siblings.remove(call)
        if not call.siblings:
            call.node.prompts.pop(call.head, None)
        path = [self._root]
        for key in position.keys:
            following = path[-1].children.get(key)
            if following is None:
                break
            path.append(following)
        while len(path) > 1 and not (path[-1].children or path[-1].prompts or path[-1].replies):
            path.pop().removed = True
            del path[-1].children[position.keys[len(path) - 1]]
        return max(0, len(path) - 1 - position.depth)

    def finish(self, position: TreePosition, call: Call, keys: Iterable[bytes]) -> None:
        """Enter the reply of ``call``. ``keys`` are the forms in which the agent may send it back."""
        self.calls.append(call)
        for key in keys:
            node = call.node.children.setdefault(key, _Node())
            node.replies[call.head] = call
            self._ends[_chain([*position.keys, key])] = node
            self._replies[key] = call

    def next_number(self) -> int:
        """Return the number of the next call. Numbers of failed calls are not used again."""
        return next(self._numbers)

    def roles(self) -> dict[int, CallRole]:
        """Return the role of every call, by its number. The structure is known for certain only when the episode has ended."""
        with_tools = any(call.tools for call in self.calls)
        used = {id(call.siblings) for call in self.calls if call.continued}
        return {call.number: self._role(call, used=id(call.siblings) in used, with_tools=with_tools) for call in self.calls}

    def _role(self, call: Call, *, used: bool, with_tools: bool) -> CallRole:
        if call.named is not None:
            return call.named
        if not call.continued:
            if call.siblings[-1] is not call or used or not call.delivered:
                return CallRole.DISCARDED
            # A conversation of one reply without tools, in an episode that works with tools, is an aside.
            if call.quoted or (call.link is Link.START and not call.tools and with_tools):
                return CallRole.AUXILIARY
        return CallRole.AGENT
