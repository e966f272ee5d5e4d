"""One episode of an agent: samples its calls, answers retries from memory, and ends.

**Exact prompts.** A request that continues a known conversation gets the recorded ids and the ids of its new messages; nothing
that was sampled is tokenized again. See ``graph``.

**Once.** A call is named by its ``Idempotency-Key``, or else by its body and the turn of the environment. Requests of the same
name are one call, also while it is being sampled. The turn is part of the name because an agent without memory sends the same
body again when it sees the same observation again, and that is a new decision. A request that its SDK marks as a retry is
looked for in earlier turns as well.

**Seeds.** The seed of a call follows from the episode's seed and the prompt, not from the order of the calls. So an agent with
parallel sub-agents samples the same tokens in every run.

**Memory.** What a call makes the episode keep is counted against its ``memory`` before the call is sampled, and what a refused
or failed call brought is not kept. See ``limits``.

**The loop.** Long prompts, and renderers for new sets of tools, are made in a thread of the gateway, one at a time per episode.

**The end.** ``seal`` cancels what is being sampled. A later request, or one above the budget, gets a short final text that is
not recorded, so that the agent's loop ends.
"""

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from palestra.agents.graph import Call, CallGraph, CallRole, Link, TreePosition
from palestra.agents.holdings import CALL, NODE, REQUEST, Hold, Holdings
from palestra.agents.limits import GatewayLimits
from palestra.agents.messages import (
    AgentMessage,
    AgentReply,
    AgentRequest,
    BadRequest,
    FunctionCall,
    OfferedTools,
    Pieces,
    ReplyFinish,
    message,
    rendered,
)
from palestra.agents.recording import Recording, record
from palestra.agents.threads import GatewayThreads
from palestra.agents.tooldoor import ToolDoor
from palestra.core import Engine, EngineSession, Renderer, Sampling
from palestra.foundation.encoding import Ints, ints
from palestra.foundation.seeding import derive_seed
from palestra.trajectory import Finish, Tokens, ToolCall
from palestra.trajectory.calls import CLOSE, OPEN, BadCall, parse_calls

__all__ = ["AgentEpisode", "CallBudget", "CallName", "EpisodeCosts", "SamplingRule"]

Renderers = Callable[[OfferedTools], Awaitable[Renderer]]
"""The tools of a request → the renderer of its prompt."""

_Rendered = TypeVar("_Rendered")
_LONG = 2**15
"""Characters of a text that is rendered in a thread. A message or call counts as ``_PER_MESSAGE``, a token of the prompt as
one."""
_PER_MESSAGE = 128
_FEW_CALLS = 64
"""Most calls whose segments are joined on the event loop at the end, if their prompts have at most ``_LONG`` tokens in all."""
_JOINED = 512
"""Bytes of a message that was joined from several items of a request."""
BODY = "body"
"""The key of ``AgentRequest.details`` that holds the agent's own request, if it is passed on."""
_PER_TOKEN = 32
"""Bytes that a token takes at most: its id, its log-prob, its text, and an entry among the runs of one version."""


class CallBudget(msgspec.Struct, frozen=True):
    """Limits on what one episode uses. ``None`` means no limit."""

    calls: int | None = None
    """Sampled replies."""
    tokens: int | None = None
    """Sampled tokens."""
    dollars: float | None = None
    """US dollars, for calls to an API with prices."""

    def spent(self, calls: int, tokens: int, dollars: float = 0.0) -> bool:
        """Return whether nothing is left."""
        limits = ((self.calls, calls), (self.tokens, tokens), (self.dollars, dollars))
        return any(limit is not None and used >= limit for limit, used in limits)


class SamplingRule(msgspec.Struct, frozen=True):
    """How replies are sampled."""

    sampling: Sampling = Sampling()
    """``max_tokens`` limits what agents ask for; the other fields apply where the agent sets nothing."""
    honor: bool = False
    """Whether the agent's own temperature, ``top_p`` and ``top_k`` apply. In training they do not: it samples from one
    distribution."""


class CallName(NamedTuple):
    """The name of a call: requests of the same name are the same call."""

    digest: bytes
    key: str = ""
    """The ``Idempotency-Key`` of the request."""
    retry: bool = False
    """Whether the client says that it sent this request before."""


Answering = asyncio.Task[tuple[AgentReply, Call | None]]
"""Makes the reply to a request, and its call if it was sampled."""


class NamedAnswers:
    """The answers of an episode, given or under way, by the name of their call."""

    def __init__(self) -> None:
        self._by_key: dict[str, tuple[bytes, Answering]] = {}
        """``Idempotency-Key`` → digest of the body that it came with, and the answer. It holds in every turn."""
        self._by_body: dict[tuple[bytes, int], Answering] = {}
        """Digest of a body and turn of the environment → the answer."""

    def find(self, name: CallName, turn: int) -> Answering | None:
        """Return the answer to an earlier request of this name; ``None`` if this is the first one."""
        if name.key:
            digest, answering = self._by_key.get(name.key, (name.digest, None))
            if digest != name.digest:
                raise BadRequest("this Idempotency-Key was used with another body", status=422, code="idempotency_key_reused")
            return answering
        turns = range(turn, -1, -1) if name.retry else (turn,)
        answers = (self._by_body.get((name.digest, at)) for at in turns)
        return next((answering for answering in answers if answering is not None), None)

    def enter(self, name: CallName, turn: int, answering: Answering) -> None:
        """Remember an answer from the moment when it is asked for."""
        if name.key:
            self._by_key[name.key] = (name.digest, answering)
        else:
            self._by_body[name.digest, turn] = answering

    def forget(self, name: CallName, turn: int) -> None:
        """Forget an answer. A later request of its name is a new one."""
        if name.key:
            self._by_key.pop(name.key, None)
        else:
            self._by_body.pop((name.digest, turn), None)

    def under_way(self) -> list[Answering]:
        """Return the answers that are not given yet."""
        answers = [*(answering for _, answering in self._by_key.values()), *self._by_body.values()]
        return [answering for answering in answers if not answering.done()]

    def clear(self) -> None:
        """Forget all answers."""
        self._by_key.clear()
        self._by_body.clear()


@dataclass(slots=True)
class EpisodeCosts:
    """The tokens and dollars of the calls so far."""

    prompt_tokens: int = 0
    sampled_tokens: int = 0
    dollars: float = 0.0


@dataclass(eq=False, slots=True)
class RequestCounts:
    """How many requests were not simply sampled, for the recording."""

    replayed: int = 0
    refused: int = 0
    overflowed: int = 0
    """Requests that left no room in the context."""
    overridden: Counter[str] = field(default_factory=Counter)
    ignored: Counter[str] = field(default_factory=Counter)


class AgentEpisode:
    """The calls that one agent makes in one episode."""

    def __init__(
        self,
        engine: Engine,
        renderers: Renderers,
        rule: SamplingRule,
        *,
        seed: int = 0,
        budget: CallBudget | None = None,
        limits: GatewayLimits | None = None,
        within: Holdings | None = None,
        threads: GatewayThreads | None = None,
    ) -> None:
        self.limits = limits or GatewayLimits()
        self.memory = Holdings.of_episode(self.limits, within)
        """The bytes that the requests of this episode make the gateway keep."""
        self.reading = asyncio.Lock()
        """Held while a request is read: many at once of one episode would hold up the others."""
        self.turn = 0
        """The turn of the environment. The owner of the episode counts it."""
        self.sealed = False
        self.door: ToolDoor | None = None
        """The environment's tools, for agents that reach them by MCP."""
        self.stored: dict[str, tuple[AgentMessage, ...]] = {}
        """Id of a reply → the conversation that it ends, for dialects that name an earlier answer."""
        self.session_id = ""
        """The agent's own name of its session, if it sends one."""
        self.spent = False
        """Whether the budget is used up."""
        self.costs = EpisodeCosts()
        self.counts = RequestCounts()
        self.failure: Exception | None = None
        """The first error of the engine or renderer."""
        self._pieces: dict[str, dict[bytes, Any]] = {}
        """Dialect → what was read before, by its digest."""
        self._kept = 0
        """Bytes that the episode keeps until it is sealed."""
        self._running = 0
        """Calls that are being answered, those included whose client went away."""
        self._entering = asyncio.Lock()
        """Held from finding the position of a call to entering it, so that calls are entered in the order of their requests."""
        self._threads = threads or GatewayThreads()
        self._engine = engine
        self._renderers = renderers
        self._rule = rule
        self._seed = seed
        self._budget = budget or CallBudget()
        self._graph = CallGraph()
        self._answers = NamedAnswers()

    @property
    def calls(self) -> int:
        """Calls that were sampled so far."""
        return len(self._graph.calls)

    def pieces(self, dialect: str) -> Pieces:
        """Return what was read before. What an agent sends after the end or the budget is not kept."""
        kept = None if self.sealed or self.spent else self._pieces.setdefault(dialect, {})
        return Pieces(kept, self.limits)

    def keep(self, size: int) -> None:
        """Count ``size`` more bytes that are kept until the end. What was played is kept whatever the limits are."""
        if not self.sealed:
            self._kept += size
            self.memory.correct(size)

    # ------------------------------------------------------------------------------------------------------- once per name

    async def answer(
        self, request: AgentRequest, pieces: Pieces, name: CallName, role: CallRole | None = None
    ) -> tuple[AgentReply, Call | None]:
        """Return the reply and its call. A request of the same name gets the same reply."""
        answering = self._answers.find(name, self.turn)
        if answering is None:
            answering = self._begin_answer(request, pieces, name, role)
        else:
            self.counts.replayed += 1
        # Shielded: the client may go away, and its retry finds the reply.
        return await asyncio.shield(answering)

    def _begin_answer(self, request: AgentRequest, pieces: Pieces, name: CallName, role: CallRole | None) -> Answering:
        if self._running >= self.limits.pending:
            text = f"{self._running} calls of this episode are being answered, which is the limit (GatewayLimits.pending)"
            raise BadRequest(text, status=429, code="rate_limit_exceeded")
        hold = Hold(self.memory)
        hold.add(REQUEST + pieces.weight + _weight(request))
        self._running += 1
        turn = self.turn
        answering = asyncio.create_task(self._once(request, pieces, role))
        self._answers.enter(name, turn, answering)

        def ended(done: Answering) -> None:
            self._running -= 1
            hold.release()
            # Only answers with a call are kept: an agent that asks on and on after its budget must not fill the memory.
            if done.cancelled() or done.exception() is not None or done.result()[1] is None:
                self._answers.forget(name, turn)

        answering.add_done_callback(ended)
        return answering

    async def _once(self, request: AgentRequest, pieces: Pieces, role: CallRole | None) -> tuple[AgentReply, Call | None]:
        self.spent = self.spent or self._budget.spent(self._graph.begun, self.costs.sampled_tokens, self.costs.dollars)
        if self.sealed or self.spent:
            self.counts.refused += 1
            text = "The episode has ended." if self.sealed else "The budget of this episode is used up."
            return AgentReply(_new_id(), text, created=int(time.time())), None
        try:
            reply, call = await self._sample(request, role)
        except BadRequest:
            raise
        except Exception as error:
            self.failure = self.failure or error
            raise
        if not self.sealed:
            self.keep(pieces.keep())
        return reply, call

    # ------------------------------------------------------------------------------------------------------------ sampling

    async def count(self, request: AgentRequest) -> int:
        """Return the number of tokens of the request's prompt."""
        async with self._entering:
            renderer = await self._renderers(request.offered)
            return len(await self._render(request.messages, 0, lambda: renderer.first(rendered(request))))

    async def _render(self, messages: Sequence[AgentMessage], tokens: int, render: Callable[[], _Rendered]) -> _Rendered:
        """Return what ``render`` makes of ``messages`` behind ``tokens`` tokens, in a thread if that may take long."""
        calls = [call for message in messages for call in message.calls]
        size = tokens + sum(_PER_MESSAGE + len(message.text) for message in messages)
        size += sum(_PER_MESSAGE + len(call.name) + len(call.arguments) for call in calls)
        return render() if size <= _LONG else await self._threads.run(render)

    def _enter(self, request: AgentRequest, position: TreePosition, call: Call, most_tokens: int) -> int:
        """Enter a call, and return the bytes that were counted for it. Raise ``BadRequest`` if they are too many."""
        if len(self._graph.calls) >= self.limits.calls:
            raise BadRequest(f"this episode has had {self.limits.calls} replies, which is the limit (GatewayLimits.calls)")
        needed = CALL + NODE * (position.new + 2) + call.prompt.nbytes + _PER_TOKEN * most_tokens
        if request.dialect == "responses":
            needed += 8 * len(request.messages) + _JOINED * len([message for message in request.messages if message.calls])
        self.memory.take(needed)
        self._kept += needed
        self._graph.begin(position, call)
        return needed

    def _abandon(self, position: TreePosition, call: Call, needed: int) -> None:
        """Forget a call that failed."""
        nodes_left = self._graph.abandon(position, call)
        if not self.sealed:
            self.keep(NODE * nodes_left - needed)

    def _finish(
        self, request: AgentRequest, position: TreePosition, call: Call, reply: AgentReply, keys: list[bytes], saved: int = 0
    ) -> None:
        """Enter the reply of a call. ``saved`` are the bytes that were counted for it and are not needed."""
        self._graph.finish(position, call, keys)
        self.keep(getsizeof(reply.body) + 2 * getsizeof(reply.text) + getsizeof(reply.reasoning) - saved)
        if request.dialect == "responses":
            self.stored[reply.id] = (*request.messages, message("assistant", reply.text, reply.calls))

    async def _sample(self, request: AgentRequest, role: CallRole | None) -> tuple[AgentReply, Call]:
        began = time.perf_counter()
        if not request.messages:
            raise BadRequest("the request has no message to answer: messages is empty, or holds only system text")
        async with self._entering:
            renderer = await self._renderers(request.offered)
            position = self._graph.position_of(request)
            prompt, link, digest = await self._prompt(request, position, renderer)
            seed = derive_seed(self._seed, "call", digest, len(position.prompts))
            sampling = self._sampling(request, renderer, len(prompt), seed)
            # Only ids that go on where an engine stopped can use what it has kept of them.
            session = EngineSession() if position.base is None or link is not Link.EXTENDED else position.base.session
            call = Call(
                number=self._graph.next_number(),
                dialect=request.dialect,
                link=link,
                parent=position.base,
                turn=self.turn,
                head=position.head,
                prompt=prompt,
                digest=digest,
                session=session,
                tools=bool(request.offered.tools),
                named=role,
            )
            needed = self._enter(request, position, call, sampling.max_tokens)
        try:
            tokens, finish = await self._engine.generate(prompt, sampling, session)
            reply, keys = _reply(request, renderer, tokens, finish)
        except BaseException:
            self._abandon(position, call, needed)
            raise
        self.costs.prompt_tokens += len(tokens.prompt)
        self.costs.sampled_tokens += len(tokens.ids)
        call.tokens, call.text, call.finish = tokens, reply.text, reply.finish
        call.called = tuple(called.name for called in reply.calls)
        call.seconds = time.perf_counter() - began
        copied = 0 if tokens.prompt is prompt else tokens.prompt.nbytes
        unused = _PER_TOKEN * (sampling.max_tokens - len(tokens.ids))
        self._finish(request, position, call, reply, keys, unused - copied)
        return reply, call

    async def _prompt(self, request: AgentRequest, position: TreePosition, renderer: Renderer) -> tuple[Ints, Link, bytes]:
        """Return the prompt, its link, and its digest. The digest of a prompt that continues another covers what is new."""
        base = position.base
        if position.link is Link.REPEATED and base is not None:
            return base.prompt, Link.REPEATED, base.digest
        if position.link is Link.EXTENDED and base is not None and base.tokens is not None:
            before, sampled, digest = base.prompt, base.tokens.ids, base.digest

            def continued() -> tuple[Ints, Link, bytes] | None:
                tail = renderer.extend(before, sampled, rendered(request, position.tail))
                if tail is None:
                    return None
                extended = ints(np.concatenate([before, sampled, tail]))
                return extended, Link.EXTENDED, _blake(digest, sampled.tobytes(), tail.tobytes())

            prompt = await self._render(position.tail, len(before), continued)
            if prompt is not None:
                return prompt

        def anew() -> tuple[Ints, Link, bytes]:
            prompt = renderer.first(rendered(request))
            return prompt, Link.TEMPLATE if position.link is Link.EXTENDED else position.link, _blake(prompt.tobytes())

        return await self._render(request.messages, 0, anew)

    def _sampling(self, request: AgentRequest, renderer: Renderer, length: int, seed: int) -> Sampling:
        room = self._engine.context_length - length
        if room < 1:
            self.counts.overflowed += 1
            raise BadRequest(
                f"the conversation has {length} tokens, and the model's context ends at {self._engine.context_length}",
                code="context_length_exceeded",
            )
        self.counts.ignored.update(request.ignored)
        rule = self._rule.sampling
        wanted = {"temperature": rule.temperature, "top_p": rule.top_p, "top_k": rule.top_k}
        for name, value in request.sampling.items():
            if value != wanted[name] and not self._rule.honor:
                self.counts.overridden[name] += 1
            elif self._rule.honor:
                wanted[name] = value
        try:
            return Sampling(
                max_tokens=min(rule.max_tokens if request.max_tokens is None else request.max_tokens, rule.max_tokens, room),
                temperature=wanted["temperature"],
                top_p=wanted["top_p"],
                top_k=max(0, int(wanted["top_k"])),  # some servers write -1 for all tokens
                stop=(*rule.stop, *request.stop),
                stop_ids=rule.stop_ids or renderer.stop_ids,
                seed=seed,
            )
        except ValueError as error:
            raise BadRequest(str(error)) from None

    # ------------------------------------------------------------------------------------------------------------- the end

    async def seal(self) -> Recording:
        """End the episode: cancel what is being sampled, and return what was recorded. Later requests are refused."""
        self.sealed = True
        running = self._answers.under_way()
        for answering in running:
            answering.cancel()
        if running:
            await asyncio.wait(running)
        self._answers.clear()
        self._pieces.clear()
        self.stored.clear()
        self.memory.correct(-self._kept)
        self._kept = 0
        few = len(self._graph.calls) <= _FEW_CALLS and sum(len(call.prompt) for call in self._graph.calls) <= _LONG
        recording = record(self._graph) if few else await self._threads.run(lambda: record(self._graph))
        return msgspec.structs.replace(
            recording,
            replayed=self.counts.replayed,
            refused=self.counts.refused,
            overridden=dict(self.counts.overridden),
            ignored=dict(self.counts.ignored),
        )


def _weight(request: AgentRequest) -> int:
    """The bytes of a request besides its messages and tools, which are weighed as they are read."""
    details = sum(memoryview(value).nbytes for value in request.details.values() if isinstance(value, bytes | msgspec.Raw))
    texts = getsizeof(request.system) + getsizeof(request.details.get("instructions"))
    return 8 * len(request.messages) + texts + details


def _blake(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def _new_id() -> str:
    return secrets.token_hex(12)


def _reply(request: AgentRequest, renderer: Renderer, tokens: Tokens, sampling_end: Finish) -> tuple[AgentReply, list[bytes]]:
    """Return the reply for the agent, and the keys of the forms in which it may come back."""
    sampled_text, reasoning = renderer.read(tokens.prompt, tokens.ids)
    text, stop = _cut(sampled_text, request.stop)
    calls: tuple[FunctionCall, ...] = ()
    if request.offered.tools and request.calls_allowed:
        text, calls = _calls(text)
    finish: ReplyFinish = "stop_sequence" if stop else "stop"
    if sampling_end in (Finish.LENGTH, Finish.OVERFLOW):
        finish = "length"
    elif calls:
        finish = "tool_calls"
    reply = AgentReply(
        id=_new_id(),
        text=text,
        calls=calls,
        reasoning=reasoning,
        finish=finish,
        stop=stop,
        prompt_tokens=len(tokens.prompt),
        completion_tokens=len(tokens.ids),
        created=int(time.time()),
    )
    forms = [message("assistant", text, calls).key]
    if stop and not calls:
        # Some agents put back the stop string, which the model wrote and the API leaves out.
        forms.append(message("assistant", text + stop).key)
    return reply, forms


def _cut(text: str, stops: tuple[str, ...]) -> tuple[str, str]:
    """Return ``text`` before its first stop string, and that string."""
    matches = [(start, stop) for stop in stops if (start := text.find(stop)) != -1]
    if not matches:
        return text, ""
    start, stop = min(matches)
    return text[:start], stop


def _calls(text: str) -> tuple[str, tuple[FunctionCall, ...]]:
    """Split ``text`` into what the agent sees as text, malformed calls included, and the calls."""
    prose, parsed = parse_calls(text)
    good = [call for call in parsed if isinstance(call, ToolCall)]
    if not good:
        return text, ()
    closing_tag = CLOSE if text.count(CLOSE) >= len(parsed) else ""
    bad = [f"{OPEN}{call.text}{closing_tag}" for call in parsed if isinstance(call, BadCall)]
    calls = tuple(FunctionCall(call.name, msgspec.json.encode(call.arguments).decode(), f"call_{_new_id()}") for call in good)
    return "\n".join(part for part in (prose, *bad) if part), calls
