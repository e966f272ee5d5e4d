"""One episode of an agent whose calls go to another API: text, usage and cost, without tokens.

Everything but the sampling is as in ``AgentEpisode``: a call is made once, its place in the graph is found by its messages, and
the episode ends the same way. A link says what the conversation continues; no ids stand behind it.
"""

import hashlib
import time
from typing import Any

from palestra.agents.episode import BODY, AgentEpisode, CallBudget, SamplingRule
from palestra.agents.graph import Call, CallRole
from palestra.agents.holdings import Holdings
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import AgentReply, AgentRequest, BadRequest, OfferedTools, message
from palestra.agents.threads import GatewayThreads
from palestra.agents.upstream import UpstreamCalls
from palestra.core import EngineSession, Renderer
from palestra.errors import UsageError
from palestra.foundation.encoding import ints

__all__ = ["PassedEpisode"]


class PassedEpisode(AgentEpisode):
    """The calls that one agent makes to another API in one episode."""

    def __init__(
        self,
        calls: UpstreamCalls,
        *,
        budget: CallBudget | None = None,
        limits: GatewayLimits | None = None,
        within: Holdings | None = None,
        threads: GatewayThreads | None = None,
    ) -> None:
        nothing: Any = None  # no engine samples
        super().__init__(nothing, _no_renderer, SamplingRule(), budget=budget, limits=limits, within=within, threads=threads)
        self._upstream = calls

    async def _sample(self, request: AgentRequest, role: CallRole | None) -> tuple[AgentReply, Call]:
        began = time.perf_counter()
        if not request.messages:
            raise BadRequest("the request has no message to answer: messages is empty, or holds only system text")
        head = hashlib.blake2b(request.system.strip().encode() + request.offered.digest, digest_size=16).digest()
        place = self._graph.place(request, head)
        digest = hashlib.blake2b(head + b"".join(place.keys), digest_size=16).digest()
        number = self._graph.next_number()
        session, offered = EngineSession(), bool(request.offered.tools)
        call = Call(number, request.dialect, place.link, place.base, self.turn, head, ints([]), digest, session, offered, role)
        needed = self._begin(request, place, call, 0)
        try:
            reply = await self._upstream.call(request, request.details[BODY])
        except BaseException as error:
            self._abandon(place, call, needed)
            if isinstance(error, BadRequest) and error.code == "context_length_exceeded":
                self.overflowed += 1
            raise
        self.prompt_tokens += reply.prompt_tokens
        self.sampled_tokens += reply.completion_tokens
        self.dollars += self._upstream.upstream.dollars(reply.prompt_tokens, reply.completion_tokens)
        call.usage = (reply.prompt_tokens, reply.completion_tokens)
        call.text, call.finish, call.called = reply.text, reply.finish, tuple(one.name for one in reply.calls)
        call.seconds = time.perf_counter() - began
        self._finish(request, place, call, reply, [message("assistant", reply.text, reply.calls).key])
        return reply, call


async def _no_renderer(tools: OfferedTools) -> Renderer:
    raise UsageError("calls that are passed on are not rendered")
