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
        position = self._graph.position_of(request)
        call = Call(
            number=self._graph.next_number(),
            dialect=request.dialect,
            link=position.link,
            parent=position.base,
            turn=self.turn,
            head=position.head,
            prompt=ints([]),
            digest=hashlib.blake2b(position.head + b"".join(position.keys), digest_size=16).digest(),
            session=EngineSession(),
            tools=bool(request.offered.tools),
            named=role,
        )
        needed = self._enter(request, position, call, 0)
        try:
            reply = await self._upstream.call(request, request.details[BODY])
        except BaseException as error:
            self._abandon(position, call, needed)
            if isinstance(error, BadRequest) and error.code == "context_length_exceeded":
                self.counts.overflowed += 1
            raise
        self.costs.prompt_tokens += reply.prompt_tokens
        self.costs.sampled_tokens += reply.completion_tokens
        self.costs.dollars += self._upstream.upstream.dollars(reply.prompt_tokens, reply.completion_tokens)
        call.usage = (reply.prompt_tokens, reply.completion_tokens)
        call.text, call.finish = reply.text, reply.finish
        call.called = tuple(called.name for called in reply.calls)
        call.seconds = time.perf_counter() - began
        self._finish(request, position, call, reply, [message("assistant", reply.text, reply.calls).key])
        return reply, call


async def _no_renderer(tools: OfferedTools) -> Renderer:
    raise UsageError("calls that are passed on are not rendered")
