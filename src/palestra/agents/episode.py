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
from sys import getsizeof
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from palestra.agents.graph import Call, CallGraph, CallRole, Link, Place
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
from palestra.trajectory import Finish, ToolCall
from palestra.trajectory.calls import CLOSE, OPEN, BadCall, parse_calls

__all__ = ["AgentEpisode", "CallBudget", "CallName", "SamplingRule"]

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
    """What one episode may use. ``None`` means no limit."""

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
    """What makes two requests the same call."""

    digest: bytes
    key: str = ""
    """The ``Idempotency-Key`` of the request."""
    retry: bool = False
    """Whether the client says that it sent this request before."""


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
        """What the requests of this episode make the gateway keep."""
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
        self.overflowed = 0
        """Requests that left no room in the context."""
        self.prompt_tokens = 0
        self.sampled_tokens = 0
        self.dollars = 0.0
        self.failure: Exception | None = None
        """The first error of the engine or renderer."""
        self._pieces: dict[str, dict[bytes, Any]] = {}
        """Dialect → what was read before, by its digest."""
        self._kept = 0
        """Bytes that the episode keeps until it is sealed."""
        self._running = 0
        """Calls that are being answered, those included whose client went away."""
        self._placing = asyncio.Lock()
        """Held from finding the place of a call to entering it, so that calls are entered in the order of their requests."""
        self._threads = threads or GatewayThreads()
        self._engine = engine
        self._renderers = renderers
        self._rule = rule
        self._seed = seed
        self._budget = budget or CallBudget()
        self._graph = CallGraph()
        self._answers: dict[tuple[bytes | str, int], asyncio.Task[tuple[AgentReply, Call | None]]] = {}
        self._bodies: dict[str, bytes] = {}
        """``Idempotency-Key`` → digest of the body that it came with."""
        self._replayed = 0
        self._refused = 0
        self._overridden: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()

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
        running = self._found(name)
        if running is None:
            running = self._begun(request, pieces, name, role)
        else:
            self._replayed += 1
        # Shielded: the client may go away, and its retry finds the reply.
        return await asyncio.shield(running)

    def _begun(
        self, request: AgentRequest, pieces: Pieces, name: CallName, role: CallRole | None
    ) -> "asyncio.Task[tuple[AgentReply, Call | None]]":
        if self._running >= self.limits.pending:
            text = f"{self._running} calls of this episode are being answered, which is the limit (GatewayLimits.pending)"
            raise BadRequest(text, status=429, code="rate_limit_exceeded")
        hold = Hold(self.memory)
        hold.add(REQUEST + pieces.weight + _weight(request))
        if name.key:
            self._bodies[name.key] = name.digest
        self._running += 1
        task = asyncio.create_task(self._once(request, pieces, role))
        key = (name.key or name.digest, -1 if name.key else self.turn)
        self._answers[key] = task

        def ended(done: "asyncio.Task[tuple[AgentReply, Call | None]]") -> None:
            self._running -= 1
            hold.release()
            self._forget_empty(key, done)

        task.add_done_callback(ended)
        return task

    def _found(self, name: CallName) -> "asyncio.Task[tuple[AgentReply, Call | None]] | None":
        if name.key:
            if self._bodies.get(name.key, name.digest) != name.digest:
                raise BadRequest("this Idempotency-Key was used with another body", status=422, code="idempotency_key_reused")
            return self._answers.get((name.key, -1))
        found = self._answers.get((name.digest, self.turn))
        turn = self.turn
        while found is None and name.retry and turn > 0:
            turn -= 1
            found = self._answers.get((name.digest, turn))
        return found

    def _forget_empty(self, key: tuple[bytes | str, int], done: "asyncio.Task[tuple[AgentReply, Call | None]]") -> None:
        """Forget what holds no call. An agent that asks on and on after its budget must not fill the memory."""
        if done.cancelled() or done.exception() is not None or done.result()[1] is None:
            self._answers.pop(key, None)
            if isinstance(key[0], str):
                self._bodies.pop(key[0], None)

    async def _once(self, request: AgentRequest, pieces: Pieces, role: CallRole | None) -> tuple[AgentReply, Call | None]:
        self.spent = self.spent or self._budget.spent(self._graph.begun, self.sampled_tokens, self.dollars)
        if self.sealed or self.spent:
            self._refused += 1
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
        async with self._placing:
            renderer = await self._renderers(request.offered)
            return len(await self._render(request.messages, 0, lambda: renderer.first(rendered(request))))

    async def _render(self, messages: Sequence[AgentMessage], tokens: int, render: Callable[[], _Rendered]) -> _Rendered:
        """Return what ``render`` makes of ``messages`` behind ``tokens`` tokens, in a thread if that may take long."""
        size = tokens + sum(_PER_MESSAGE + len(one.text) for one in messages)
        size += sum(_PER_MESSAGE + len(call.name) + len(call.arguments) for one in messages for call in one.calls)
        return render() if size <= _LONG else await self._threads.run(render)

    def _begin(self, request: AgentRequest, place: Place, call: Call, most_tokens: int) -> int:
        """Enter a call, and return the bytes that were counted for it. Raise ``BadRequest`` if they are too many."""
        if len(self._graph.calls) >= self.limits.calls:
            raise BadRequest(f"this episode has had {self.limits.calls} replies, which is the limit (GatewayLimits.calls)")
        needed = CALL + NODE * (place.new + 2) + call.prompt.nbytes + _PER_TOKEN * most_tokens
        if request.dialect == "responses":
            needed += 8 * len(request.messages) + _JOINED * sum(bool(one.calls) for one in request.messages)
        self.memory.take(needed)
        self._kept += needed
        self._graph.begin(place, call)
        return needed

    def _abandon(self, place: Place, call: Call, needed: int) -> None:
        """Forget a call that failed."""
        places = self._graph.abandon(place, call)
        if not self.sealed:
            self.keep(NODE * places - needed)

    def _finish(
        self, request: AgentRequest, place: Place, call: Call, reply: AgentReply, keys: list[bytes], saved: int = 0
    ) -> None:
        """Enter the reply of a call. ``saved`` are the bytes that were counted for it and are not needed."""
        self._graph.finish(place, call, keys)
        self.keep(getsizeof(reply.body) + 2 * getsizeof(reply.text) + getsizeof(reply.reasoning) - saved)
        if request.dialect == "responses":
            said = message("assistant", reply.text, reply.calls)
            self.stored[reply.id] = (*request.messages, said)

    async def _sample(self, request: AgentRequest, role: CallRole | None) -> tuple[AgentReply, Call]:
        began = time.perf_counter()
        if not request.messages:
            raise BadRequest("the request has no message to answer: messages is empty, or holds only system text")
        tools = request.offered
        head = hashlib.blake2b(request.system.strip().encode() + tools.digest, digest_size=16).digest()
        async with self._placing:
            renderer = await self._renderers(tools)
            place = self._graph.place(request, head)
            prompt, link, digest = await self._prompt(request, place, renderer)
            seed = derive_seed(self._seed, "call", digest, len(place.prompts))
            sampling = self._sampling(request, renderer, len(prompt), seed)
            session = EngineSession() if place.base is None or link is not Link.EXTENDED else place.base.session
            call = Call(
                self._graph.next_number(),
                request.dialect,
                link,
                place.base,
                self.turn,
                head,
                prompt,
                digest,
                session,
                bool(tools.tools),
                role,
            )
            needed = self._begin(request, place, call, sampling.max_tokens)
        try:
            tokens, finish = await self._engine.generate(prompt, sampling, session)
            reply, keys = _reply(request, renderer, Read(tokens.prompt, tokens.ids, finish))
        except BaseException:
            self._abandon(place, call, needed)
            raise
        self.prompt_tokens += len(tokens.prompt)
        self.sampled_tokens += len(tokens.ids)
        call.tokens, call.text, call.finish = tokens, reply.text, reply.finish
        call.called = tuple(one.name for one in reply.calls)
        call.seconds = time.perf_counter() - began
        copied = 0 if tokens.prompt is prompt else tokens.prompt.nbytes
        unused = _PER_TOKEN * (sampling.max_tokens - len(tokens.ids))
        self._finish(request, place, call, reply, keys, unused - copied)
        return reply, call

    async def _prompt(self, request: AgentRequest, place: Place, renderer: Renderer) -> tuple[Ints, Link, bytes]:
        """Return the prompt, its link, and its digest. The digest of a prompt that continues another covers what is new."""
        base = place.base
        if place.link is Link.REPEATED and base is not None:
            return base.prompt, Link.REPEATED, base.digest
        if place.link is Link.EXTENDED and base is not None and base.tokens is not None:
            before, sampled, digest = base.prompt, base.tokens.ids, base.digest

            def continued() -> tuple[Ints, Link, bytes] | None:
                tail = renderer.extend(before, sampled, rendered(request, place.tail))
                if tail is None:
                    return None
                extended = ints(np.concatenate([before, sampled, tail]))
                return extended, Link.EXTENDED, _blake(digest, sampled.tobytes(), tail.tobytes())

            prompt = await self._render(place.tail, len(before), continued)
            if prompt is not None:
                return prompt

        def anew() -> tuple[Ints, Link, bytes]:
            prompt = renderer.first(rendered(request))
            return prompt, Link.TEMPLATE if place.link is Link.EXTENDED else place.link, _blake(prompt.tobytes())

        return await self._render(request.messages, 0, anew)

    def _sampling(self, request: AgentRequest, renderer: Renderer, length: int, seed: int) -> Sampling:
        room = self._engine.context_length - length
        if room < 1:
            self.overflowed += 1
            raise BadRequest(
                f"the conversation has {length} tokens, and the model's context ends at {self._engine.context_length}",
                code="context_length_exceeded",
            )
        self._ignored.update(request.ignored)
        rule = self._rule.sampling
        wanted = {"temperature": rule.temperature, "top_p": rule.top_p, "top_k": rule.top_k}
        for name, value in request.sampling.items():
            if value != wanted[name] and not self._rule.honor:
                self._overridden[name] += 1
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
        running = [task for task in self._answers.values() if not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        self._answers.clear()
        self._pieces.clear()
        self.stored.clear()
        self._bodies.clear()
        self.memory.correct(-self._kept)
        self._kept = 0
        few = len(self._graph.calls) <= _FEW_CALLS and sum(len(call.prompt) for call in self._graph.calls) <= _LONG
        recording = record(self._graph) if few else await self._threads.run(lambda: record(self._graph))
        return msgspec.structs.replace(
            recording,
            replayed=self._replayed,
            refused=self._refused,
            overridden=dict(self._overridden),
            ignored=dict(self._ignored),
        )


def _weight(request: AgentRequest) -> int:
    """The bytes of a request beside its messages and tools, which are weighed as they are read."""
    details = sum(memoryview(value).nbytes for value in request.details.values() if isinstance(value, bytes | msgspec.Raw))
    texts = getsizeof(request.system) + getsizeof(request.details.get("instructions"))
    return 8 * len(request.messages) + texts + details


def _blake(*parts: bytes) -> bytes:
    return hashlib.blake2b(b"".join(parts), digest_size=16).digest()


def _new_id() -> str:
    return secrets.token_hex(12)


class Read(NamedTuple):
    """What the engine returned."""

    prompt: Ints
    ids: Ints
    finish: Finish


def _reply(request: AgentRequest, renderer: Renderer, read: Read) -> tuple[AgentReply, list[bytes]]:
    """Return the reply for the agent, and the keys of the forms in which it may come back."""
    whole, reasoning = renderer.read(read.prompt, read.ids)
    text, stop = _cut(whole, request.stop)
    calls: tuple[FunctionCall, ...] = ()
    if request.offered.tools and request.calls_allowed:
        text, calls = _calls(text)
    finish: ReplyFinish = "stop_sequence" if stop else "stop"
    if read.finish in (Finish.LENGTH, Finish.OVERFLOW):
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
        prompt_tokens=len(read.prompt),
        completion_tokens=len(read.ids),
        created=int(time.time()),
    )
    forms = [message("assistant", text, calls).key]
    if stop and not calls:
        # Some agents put back the stop string, which the model wrote and the API leaves out.
        forms.append(message("assistant", text + stop).key)
    return reply, forms


def _cut(text: str, stops: tuple[str, ...]) -> tuple[str, str]:
    """Return ``text`` before its first stop string, and that string."""
    found = [(at, stop) for stop in stops if (at := text.find(stop)) != -1]
    if not found:
        return text, ""
    at, stop = min(found)
    return text[:at], stop


def _calls(text: str) -> tuple[str, tuple[FunctionCall, ...]]:
    """Split ``text`` into what the agent sees as text, malformed calls included, and the calls."""
    prose, parsed = parse_calls(text)
    good = [one for one in parsed if isinstance(one, ToolCall)]
    if not good:
        return text, ()
    closed = text.count(CLOSE)
    bad = [f"{OPEN}{one.text}{CLOSE if closed >= len(parsed) else ''}" for one in parsed if isinstance(one, BadCall)]
    calls = tuple(FunctionCall(one.name, msgspec.json.encode(one.arguments).decode(), f"call_{_new_id()}") for one in good)
    return "\n".join(part for part in (prose, *bad) if part), calls
