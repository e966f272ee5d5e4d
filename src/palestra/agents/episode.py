"""One episode of an agent: samples its calls, answers retries from memory, and ends.

**Exact prompts.** A request that continues a known conversation gets the recorded ids and the ids of its new messages; nothing
that was sampled is tokenized again. See ``graph``.

**Once.** A call is named by its ``Idempotency-Key``, or else by its body and the turn of the environment. Requests of the same
name are one call, also while it is being sampled. The turn is part of the name because an agent without memory sends the same
body again when it sees the same observation again, and that is a new decision. A request that its SDK marks as a retry is
looked for in earlier turns as well.

**Seeds.** The seed of a call follows from the episode's seed and the prompt, not from the order of the calls. So an agent with
parallel sub-agents samples the same tokens in every run.

**The end.** ``seal`` cancels what is being sampled. A later request, or one above the budget, gets a short final text that is
not recorded, so that the agent's loop ends.
"""

import asyncio
import hashlib
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np

from palestra.agents.graph import Call, CallGraph, CallRole, Link, Place
from palestra.agents.messages import AgentReply, AgentRequest, BadRequest, FunctionCall, Pieces, ReplyFinish, message, rendered
from palestra.agents.recording import Recording, record
from palestra.agents.tooldoor import ToolDoor
from palestra.calls import CLOSE, OPEN, BadCall, parse_calls
from palestra.core import Engine, EngineSession, Renderer, Sampling
from palestra.encoding import Ints, ints
from palestra.seeding import derive_seed
from palestra.trajectory import Finish, ToolCall

__all__ = ["AgentEpisode", "CallBudget", "CallName", "SamplingRule"]

Tools = tuple[dict[str, Any], ...]
Renderers = Callable[[bytes, Tools], Renderer]
"""The digest of the tools, and the tools → the renderer of the prompt."""


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
    ) -> None:
        self.turn = 0
        """The turn of the environment. The owner of the episode counts it."""
        self.sealed = False
        self.door: ToolDoor | None = None
        """The environment's tools, for agents that reach them by MCP."""
        self.stored: dict[str, AgentRequest] = {}
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
        self._pieces: dict[str, Pieces] = {}
        """Dialect → messages that were read before."""
        self._engine = engine
        self._renderers = renderers
        self._rule = rule
        self._seed = seed
        self._budget = budget or CallBudget()
        self._graph = CallGraph()
        self._answers: dict[tuple[bytes | str, int], asyncio.Task[tuple[AgentReply, Call | None]]] = {}
        self._bodies: dict[str, bytes] = {}
        """``Idempotency-Key`` → digest of the body that it came with."""
        self._digests: dict[int, tuple[Tools, bytes]] = {}
        self._replayed = 0
        self._refused = 0
        self._overridden: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        """Calls that were sampled so far."""
        return len(self._graph.calls)

    def known(self, dialect: str) -> Pieces:
        """Return the messages that were read before. What an agent sends after the end or the budget is not kept."""
        return {} if self.sealed or self.spent else self._pieces.setdefault(dialect, {})

    # ------------------------------------------------------------------------------------------------------- once per name

    async def answer(
        self, request: AgentRequest, name: CallName, role: CallRole | None = None
    ) -> tuple[AgentReply, Call | None]:
        """Return the reply and its call. A request of the same name gets the same reply."""
        running = self._found(name)
        if running is None:
            task = asyncio.create_task(self._once(request, role))
            key = (name.key or name.digest, -1 if name.key else self.turn)
            self._answers[key] = running = task
            task.add_done_callback(lambda done: self._forget_empty(key, done))
        else:
            self._replayed += 1
        # Shielded: the client may go away, and its retry finds the reply.
        return await asyncio.shield(running)

    def _found(self, name: CallName) -> "asyncio.Task[tuple[AgentReply, Call | None]] | None":
        if name.key:
            if self._bodies.setdefault(name.key, name.digest) != name.digest:
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

    async def _once(self, request: AgentRequest, role: CallRole | None) -> tuple[AgentReply, Call | None]:
        self.spent = self.spent or self._budget.spent(self._graph.begun, self.sampled_tokens, self.dollars)
        if self.sealed or self.spent:
            self._refused += 1
            text = "The episode has ended." if self.sealed else "The budget of this episode is used up."
            return AgentReply(_new_id(), text, created=int(time.time())), None
        try:
            return await self._sample(request, role)
        except BadRequest:
            raise
        except Exception as error:
            self.failure = self.failure or error
            raise

    # ------------------------------------------------------------------------------------------------------------ sampling

    def renderer_of(self, request: AgentRequest) -> Renderer:
        """Return the renderer of the request's prompt."""
        return self._renderers(self._digest(request.tools), request.tools)

    async def _sample(self, request: AgentRequest, role: CallRole | None) -> tuple[AgentReply, Call]:
        began = time.perf_counter()
        if not request.messages:
            raise BadRequest("the request has no message to answer: messages is empty, or holds only system text")
        tools = self._digest(request.tools)
        renderer = self._renderers(tools, request.tools)
        head = hashlib.blake2b(request.system.strip().encode() + tools, digest_size=16).digest()
        place = self._graph.place(request, head)
        prompt, link, digest = self._prompt(request, place, renderer)
        seed = derive_seed(self._seed, "call", digest, len(place.node.prompts.get(head, ())))
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
            bool(request.tools),
            role,
        )
        self._graph.begin(place, call)
        try:
            tokens, finish = await self._engine.generate(prompt, sampling, session)
            reply, keys = _reply(request, renderer, Read(tokens.prompt, tokens.ids, finish))
        except BaseException:
            self._graph.abandon(place, call)
            raise
        self.prompt_tokens += len(tokens.prompt)
        self.sampled_tokens += len(tokens.ids)
        call.tokens, call.text, call.finish = tokens, reply.text, reply.finish
        call.called = tuple(one.name for one in reply.calls)
        call.seconds = time.perf_counter() - began
        self._graph.finish(place, call, keys)
        if request.dialect == "responses":
            said = message("assistant", reply.text, reply.calls)
            self.stored[reply.id] = msgspec.structs.replace(request, messages=(*request.messages, said))
        return reply, call

    def _digest(self, tools: Tools) -> bytes:
        """The digest of the tools of a request. Requests with the same tools hold the same object: see ``known``."""
        if not tools:
            return b""
        known = self._digests.get(id(tools))
        if known is None or known[0] is not tools:
            content = msgspec.json.encode(tools, order="deterministic")
            known = self._digests[id(tools)] = (tools, hashlib.blake2b(content, digest_size=16).digest())
        return known[1]

    def _prompt(self, request: AgentRequest, place: Place, renderer: Renderer) -> tuple[Ints, Link, bytes]:
        """Return the prompt, its link, and its digest. The digest of a prompt that continues another covers what is new."""
        base = place.base
        if place.link is Link.REPEATED and base is not None:
            return base.prompt, Link.REPEATED, base.digest
        if place.link is Link.EXTENDED and base is not None and base.tokens is not None:
            tail = renderer.extend(base.prompt, base.tokens.ids, rendered(request, place.tail))
            if tail is not None:
                digest = _blake(base.digest, base.tokens.ids.tobytes(), tail.tobytes())
                return ints(np.concatenate([base.prompt, base.tokens.ids, tail])), Link.EXTENDED, digest
        prompt = renderer.first(rendered(request))
        return prompt, Link.TEMPLATE if place.link is Link.EXTENDED else place.link, _blake(prompt.tobytes())

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
                max_tokens=min(request.max_tokens or rule.max_tokens, rule.max_tokens, room),
                temperature=wanted["temperature"],
                top_p=wanted["top_p"],
                top_k=int(wanted["top_k"]),
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
        self._digests.clear()
        self.stored.clear()
        return msgspec.structs.replace(
            record(self._graph),
            replayed=self._replayed,
            refused=self._refused,
            overridden=dict(self._overridden),
            ignored=dict(self._ignored),
        )


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
    if request.tools and request.calls_allowed:
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
