"""The recording that the gateway hands over at the end of an episode: the calls, and exact tokens in segments.

The calls of each role are merged on their own, by their token ids (``SegmentRecorder``): a prompt that begins with all ids of a
segment extends it. So every sampled token stands in exactly one segment as sampled, and in the others as context. What the
graph of messages found out only makes prompts that can be merged; it is no proof.

Parallel sub-agents call in an order that chance decides. So the segments are made in an order that follows from the calls
themselves: by turn, by the number of calls before it in its conversation, and by prompt. The rows keep the order of time.
"""

import msgspec

from palestra.agents.graph import FORKS, Call, CallGraph, CallRole, Link
from palestra.trajectory import AgentCall, AgentRecord, Branch, PlayedRecord, Segment
from palestra.trajectory.segments import SegmentRecorder

__all__ = ["Recording", "record"]


class Recording(msgspec.Struct, frozen=True):
    """The calls of an episode and their tokens."""

    calls: tuple[AgentCall, ...] = ()
    segments: dict[CallRole, tuple[Segment, ...]] = {}
    links: dict[str, int] = {}
    """How many calls have each kind of link; forks have the name of their reason."""
    replayed: int = 0
    """Requests that were answered from an earlier call: retries and duplicates."""
    refused: int = 0
    """Requests after the end, or above the budget."""
    overridden: dict[str, int] = {}
    """Parameter → requests whose value was replaced, because training samples from the model's own distribution."""
    ignored: dict[str, int] = {}
    """Parameter → requests that asked for an effect that the gateway does not have."""

    @property
    def forks(self) -> dict[str, int]:
        """Reason → number of prompts that were rendered anew for it."""
        return {name: count for name in FORKS if (count := self.links.get(name, 0))}

    @property
    def merged(self) -> float:
        """The share of calls after the first that continue known ids."""
        later = sum(self.links.values()) - self.links.get(Link.START, 0)
        continuing = self.links.get(Link.EXTENDED, 0) + self.links.get(Link.REPEATED, 0)
        return continuing / later if later else 1.0

    def played(self, *, auxiliary: bool = False) -> PlayedRecord:
        """Return what a trajectory keeps. ``auxiliary`` calls are trained only if it is true."""
        trained = (CallRole.AGENT, CallRole.AUXILIARY) if auxiliary else (CallRole.AGENT,)
        segments = tuple(segment for role in trained for segment in self.segments.get(role, ()))
        branches = tuple(
            Branch(str(role), segment) for role in CallRole if role not in trained for segment in self.segments.get(role, ())
        )
        agent = AgentRecord(
            calls=self.calls,
            branches=branches,
            links=self.links,
            replayed=self.replayed,
            refused=self.refused,
            overridden=self.overridden,
            ignored=self.ignored,
        )
        return PlayedRecord(segments, agent)


def record(graph: CallGraph) -> Recording:
    """Return the recording of a finished episode."""
    recorders: dict[CallRole, SegmentRecorder] = {}
    calls = sorted(graph.calls, key=lambda call: call.number)
    roles = graph.roles()
    depths: dict[int, int] = {}
    for call in calls:  # a parent has a smaller number
        depths[call.number] = 0 if call.parent is None else depths.get(call.parent.number, 0) + 1
    for call in sorted(calls, key=lambda call: (call.turn, depths[call.number], call.digest, call.number)):
        if call.tokens is not None:
            recorders.setdefault(roles[call.number], SegmentRecorder()).add(call.tokens, call.turn)
    rows = [_row(call, roles[call.number]) for call in calls]
    segments = {role: recorder.segments() for role, recorder in recorders.items()}
    return Recording(tuple(rows), segments, {str(link): count for link, count in graph.links.items() if count})


def _row(call: Call, role: CallRole) -> AgentCall:
    tokens = call.tokens
    prompt_tokens, sampled = call.usage or (len(call.prompt), 0 if tokens is None else len(tokens.ids))
    return AgentCall(
        number=call.number,
        turn=call.turn,
        dialect=call.dialect,
        link=str(call.link),
        role=str(role),
        parent=None if call.parent is None else call.parent.number,
        prompt_tokens=prompt_tokens,
        tokens=sampled,
        version=0 if tokens is None else tokens.version,
        text=call.text,
        tools=call.called,
        finish=call.finish,
    )
