"""Sessions: each an environment, a number that only grows, the last answer, and a lease. No socket is seen from here.

The rules, which the protocol page tells in words and the state machine test holds against a model:

- A call with a new, larger ``seq`` runs once. The same ``seq`` with the same verb is answered from memory, or joins the call
  that is still under way; with another verb it is a ``conflict``. A smaller one is ``stale``.
- A call that is refused (``busy``, ``draining``) has not been accepted: it may be sent again under the same ``seq``.
- One call runs at a time. ``Close`` alone may interrupt it.
- A call that outlives its deadline is abandoned and takes the episode with it, because nobody knows how far it got.
- A session nobody speaks for during the lease is closed. It belongs to the token that opened it.
"""

import asyncio
import logging
import math
import secrets
from collections.abc import Callable, Coroutine
from time import monotonic, perf_counter
from typing import Any, TypeVar

import msgspec

from palestra.core import AsyncEnv, Env
from palestra.encoding import clean_text
from palestra.errors import EnvError, EpisodeError, EpisodeOver, SchemaError, Unsupported, UsageError
from palestra.serve.host import Host, Offer
from palestra.serve.metrics import Metrics
from palestra.serve.wire import (
    PROTOCOL_VERSION,
    Ask,
    Beat,
    Call,
    Close,
    Code,
    Done,
    Fault,
    FromServer,
    Hello,
    Limits,
    Reply,
    Reset,
    Result,
    Said,
    Shown,
    Step,
    Stepped,
    Verb,
    Welcome,
    check_depth,
    decode_frame,
    encode_frame,
)

__all__ = ["Deliver", "Session", "Sessions"]

_log = logging.getLogger("palestra.serve")
_T = TypeVar("_T")

LONGEST_MESSAGE = 2000
"""Characters of an exception that are told to a client. Tracebacks stay on the server."""
RETRY_AFTER = 0.5
"""Seconds a refused client is asked to wait."""

Deliver = Callable[[bytes], None]
"""Where an answer that was not ready at once is sent."""


class Session:
    """One client's environment, and how far the conversation has got."""

    __slots__ = (
        "deliver",
        "env",
        "id",
        "max_message",
        "offer",
        "owner",
        "playing",
        "reply",
        "request",
        "running",
        "seen",
        "seq",
        "verb",
    )

    def __init__(self, offer: Offer, owner: bytes, max_message: int) -> None:
        self.id = secrets.token_hex(16)
        self.owner = owner
        self.offer = offer
        self.max_message = max_message
        self.env: AsyncEnv | None = None
        self.playing = False
        """Between a reset and the end of its episode."""
        self.seq = 0
        self.verb: Verb | None = None
        self.request = 0
        self.reply = b""
        """The answer to ``seq``; empty while it is under way."""
        self.running: asyncio.Task[None] | None = None
        self.deliver: Deliver | None = None
        self.seen = 0.0


class Sessions:
    """All sessions of one server."""

    def __init__(self, host: Host, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        self.host = host
        self.limits = limits
        self.metrics = Metrics()
        self.draining = False
        self._clock = clock
        self._table: dict[str, Session] = {}
        self._known_bounds: dict[str, tuple[float, float | None]] = {}
        self._waiting = 0
        self._cleaning: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._table)

    @property
    def playing(self) -> int:
        """Sessions in the middle of an episode."""
        return sum(session.playing for session in self._table.values())

    # ------------------------------------------------------------------------------------------------- opening and ending

    def hello(self, owner: bytes, hello: Hello) -> tuple[Session, Welcome] | Fault:
        """Open a session, or go on with one."""
        if PROTOCOL_VERSION not in hello.versions:
            return self._fault(Code.VERSION, f"this server speaks version {PROTOCOL_VERSION}, not {list(hello.versions)}")
        if hello.session:
            session = self.find(owner, hello.session)
            if session is None:
                return self._fault(Code.NO_SESSION, "no such session: it was closed, its lease ran out, or it is not yours")
            session.max_message = min(hello.max_message, self.limits.max_message)
            self.metrics.resumed += 1
            return session, self._welcome(session)
        if self.draining:
            return self._fault(Code.DRAINING, "this server is about to stop", retry_after=RETRY_AFTER)
        offer = self.host.offers.get(hello.env)
        if offer is None:
            return self._fault(Code.UNKNOWN_ENV, f'this server does not serve "{hello.env}"')
        if len(self._table) >= self.limits.max_sessions:
            return self._fault(Code.BUSY, f"{self.limits.max_sessions} sessions are open", retry_after=RETRY_AFTER)
        session = Session(offer, owner, min(hello.max_message, self.limits.max_message))
        self._table[session.id] = session
        self.metrics.opened += 1
        return session, self._welcome(session)

    def find(self, owner: bytes, id: str) -> Session | None:
        """The session, if it is there and belongs to ``owner``."""
        session = self._table.get(id)
        return session if session is not None and session.owner == owner else None

    def renew(self, session: Session) -> None:
        """Somebody still speaks for ``session``."""
        session.seen = self._clock()

    def end(self, session: Session) -> None:
        """Forget ``session`` now; its environment is closed in the background."""
        self._table.pop(session.id, None)
        if session.running is not None:
            session.running.cancel()
        self._let_go(session)

    def expire(self) -> list[Session]:
        """End every session whose lease ran out."""
        before = self._clock() - self.limits.ttl
        gone = [session for session in self._table.values() if session.seen < before]
        for session in gone:
            self.metrics.expired += 1
            self.end(session)
        return gone

    async def end_all(self) -> None:
        """End every session and wait until their environments are closed."""
        for session in list(self._table.values()):
            self.end(session)
        while self._cleaning:
            await asyncio.wait(self._cleaning)

    # ------------------------------------------------------------------------------------------------------------- calls

    def take(self, session: Session, call: Call) -> bytes:
        """The answer to ``call``; empty if there is none yet, and then ``session.deliver`` gets it."""
        session.seen = self._clock()
        if call.seq <= session.seq:
            return self._earlier(session, call)
        refusal = self._refusal(session, call)
        if refusal is not None:
            return encode_frame(msgspec.structs.replace(refusal, seq=call.seq, request=call.request))
        session.seq, session.verb, session.request, session.reply = call.seq, call.verb, call.request, b""
        if session.offer.in_place:
            return self._run_in_place(session, call)
        abandoned = session.running  # only Close gets here while there is one
        session.running = asyncio.create_task(self._run(session, call, abandoned))
        session.running.add_done_callback(self._answered)  # also of one that was cancelled before it began
        self._waiting += 1
        return b""

    async def answer(self, session: Session, call: Call) -> bytes:
        """The answer to ``call``, when it is there."""
        frame = self.take(session, call)
        if session.running is not None and (session.seq, session.verb) == (call.seq, call.verb):
            await asyncio.wait([session.running])
            frame = session.reply
        return frame or encode_frame(self._fault(Code.NO_SESSION, "the session ended", seq=call.seq, request=call.request))

    def _earlier(self, session: Session, call: Call) -> bytes:
        if call.seq < session.seq:
            code, message = Code.STALE, f"call {call.seq} is over; the last was {session.seq}"
        elif call.verb != session.verb:
            code, message = Code.CONFLICT, f"call {call.seq} was something else"
        elif not session.reply:
            session.request = call.request  # the answer will carry the latest request
            return encode_frame(Beat(request=call.request))
        else:
            self.metrics.repeated += 1
            reply = decode_frame(session.reply, FromServer)
            return encode_frame(msgspec.structs.replace(reply, request=call.request))
        return encode_frame(self._fault(code, message, seq=call.seq, request=call.request))

    def _refusal(self, session: Session, call: Call) -> Fault | None:
        if session.id not in self._table:
            return self._fault(Code.NO_SESSION, "the session has ended")
        if isinstance(call.verb, Close):
            return None
        if session.running is not None:
            return self._fault(Code.BUSY, f"call {session.seq} is under way", retry_after=RETRY_AFTER)
        if call.deadline > self.limits.max_deadline:
            return self._fault(Code.USAGE, f"a deadline of {call.deadline:g} s; {self.limits.max_deadline:g} is the limit")
        if self._waiting >= self.limits.max_waiting and not session.offer.in_place:
            return self._fault(Code.BUSY, f"{self._waiting} calls are under way", retry_after=RETRY_AFTER)
        if isinstance(call.verb, Reset):
            return self._no_reset(session, call.verb)
        if not session.playing and isinstance(call.verb, Step):
            return self._fault(Code.EPISODE_OVER, "this episode has ended or has not begun; reset first")
        if session.env is None:
            return self._fault(Code.EPISODE_OVER, "there is no episode; reset first")
        return None

    def _no_reset(self, session: Session, verb: Reset) -> Fault | None:
        if self.draining:
            return self._fault(Code.DRAINING, "this server is about to stop", retry_after=RETRY_AFTER)
        needs_worker = session.offer.isolated and session.env is None
        if needs_worker and self.host.workers >= self.limits.max_workers:
            return self._fault(Code.BUSY, f"{self.host.workers} worker processes are in use", retry_after=RETRY_AFTER)
        try:
            check_depth(verb.task.params)
        except SchemaError as error:
            return self._fault(Code.BAD_FRAME, f"the task's params are {error}")
        return None

    def _run_in_place(self, session: Session, call: Call) -> bytes:
        began = perf_counter()
        answer = _now(self._outcome(session, call.verb))
        seconds = perf_counter() - began
        self.metrics.called(_name(call.verb), seconds)
        if seconds > call.deadline:
            answer = self._overrun(session, call)
        session.reply = self._encoded(session, answer)
        return session.reply

    async def _run(self, session: Session, call: Call, abandoned: "asyncio.Task[None] | None") -> None:
        began = perf_counter()
        try:
            async with asyncio.timeout(call.deadline):
                if abandoned is not None:
                    abandoned.cancel()
                    await asyncio.wait([abandoned])
                answer = await self._outcome(session, call.verb)
        except TimeoutError:
            answer = self._overrun(session, call)
        finally:
            if session.running is asyncio.current_task():
                session.running = None
            self.metrics.called(_name(call.verb), perf_counter() - began)
        session.reply = self._encoded(session, answer)
        if session.deliver is not None:
            session.deliver(session.reply)

    def _answered(self, _: "asyncio.Task[None]") -> None:
        self._waiting -= 1

    def _overrun(self, session: Session, call: Call) -> Fault:
        self._let_go(session)
        return self._fault(Code.DEADLINE, f"the call's deadline of {call.deadline:.3g} s passed; the episode is lost")

    async def _outcome(self, session: Session, verb: Verb) -> Result | Fault:
        try:
            return await self._perform(session, verb)
        except (Exception, SystemExit) as error:
            return self._told(error)

    async def _perform(self, session: Session, verb: Verb) -> Result:
        if isinstance(verb, Step):
            assert session.env is not None
            stepped = _checked(await session.env.step(verb.action))
            session.playing = not (stepped.terminated or stepped.truncated)
            return stepped
        if isinstance(verb, Reset):
            return await self._reset(session, verb)
        if isinstance(verb, Close):
            self._table.pop(session.id, None)
            await self._close(session)
            return Done()
        assert session.env is not None
        if isinstance(verb, Ask):
            ask = session.env.oracle if verb.verb == "oracle" else session.env.sample_random_action
            return Said(action=clean_text(str(await ask())))
        await session.env.seed_actions(verb.seed)
        return Done()

    async def _reset(self, session: Session, verb: Reset) -> Shown:
        session.playing = False
        if session.env is not None and not session.offer.reusable:
            try:
                await self._close(session)
            except Exception:  # the last episode's, and no business of the new one
                _log.exception("%s failed to close", session.offer.spec.id)
        if session.env is None:
            session.env = self.host.build(session.offer)
        task = msgspec.structs.replace(verb.task, env=session.offer.spec.id)
        observation, info = await session.env.reset(task=task)
        if not isinstance(info, dict):
            raise EnvError(f"reset() must return a dict as info, got a {type(info).__name__}")
        session.playing = True
        floor, ceiling = self._bounds(session.offer.spec.id, session.env.unwrapped)
        return Shown(observation=observation, info=info, floor=floor, ceiling=ceiling)

    def _bounds(self, id: str, env: Env | AsyncEnv) -> tuple[float, float | None]:
        """Floor and ceiling of an id. They are the same for all its tasks and may be costly to work out, so asked for once."""
        if id not in self._known_bounds:
            self._known_bounds[id] = (float(env.floor), env.ceiling)
        return self._known_bounds[id]

    async def _close(self, session: Session) -> None:
        env, session.env, session.playing = session.env, None, False
        if env is not None:
            await self.host.close(session.offer, env)

    def _let_go(self, session: Session) -> None:
        """Close the environment behind the scenes: whoever asked does not wait for it."""
        env, session.env, session.playing = session.env, None, False
        if env is None:
            return
        task = asyncio.create_task(self._close_quietly(session.offer, env))
        self._cleaning.add(task)
        task.add_done_callback(self._cleaning.discard)

    async def _close_quietly(self, offer: Offer, env: AsyncEnv) -> None:
        try:
            async with asyncio.timeout(self.limits.ttl):
                await self.host.close(offer, env)
        except Exception:
            _log.exception("%s failed to close", offer.spec.id)

    # ------------------------------------------------------------------------------------------------------------- words

    def _welcome(self, session: Session) -> Welcome:
        session.seen = self._clock()
        limits = self.limits
        return Welcome(
            version=PROTOCOL_VERSION,
            session=session.id,
            env=session.offer.spec.id,
            seq=session.seq,
            heartbeat=limits.heartbeat,
            ttl=limits.ttl,
            max_message=session.max_message,
            max_deadline=limits.max_deadline,
        )

    def _encoded(self, session: Session, answer: Result | Fault) -> bytes:
        seq, request = session.seq, session.request
        if isinstance(answer, Fault):
            return encode_frame(msgspec.structs.replace(answer, seq=seq, request=request))
        try:
            frame = encode_frame(Reply(seq=seq, request=request, result=answer))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return self._encoded(session, self._told(EnvError(f"what the environment returned cannot be sent: {error}")))
        if len(frame) > session.max_message:
            said = f"what the environment returned takes {len(frame)} bytes; {session.max_message} were agreed"
            return self._encoded(session, self._told(EnvError(said)))
        return frame

    def _told(self, error: BaseException) -> Fault:
        message = clean_text(str(error) or repr(error))[:LONGEST_MESSAGE]
        if isinstance(error, UsageError):
            return self._fault(_usage_code(error), message, kind=type(error).__qualname__)
        told = error if isinstance(error, EpisodeError) else EnvError()
        return self._fault(Code.FAILED, message, kind=told.kind or type(error).__qualname__, boundary=told.boundary)

    def _fault(self, code: Code, message: str, **details: Any) -> Fault:
        self.metrics.faults[code] += 1
        return Fault(code=code, message=message, **details)


def _now(work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that does not wait."""
    try:
        work.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    work.close()
    raise AssertionError("an environment that is played in place must not wait")


def _checked(step: Any) -> Stepped:
    try:
        observation, reward, terminated, truncated, info = step
    except (TypeError, ValueError):
        raise EnvError(f"step() must return five values, got {step!r:.200}") from None
    if not isinstance(info, dict):
        raise EnvError(f"step() must return a dict as info, got a {type(info).__name__}")
    try:
        number = float(reward)
    except (TypeError, ValueError):
        raise EnvError(f"a reward must be a number, got {reward!r:.200}") from None
    if not math.isfinite(number):
        raise EnvError(f"a reward must be finite, got {number}")
    return Stepped(observation=observation, reward=number, terminated=bool(terminated), truncated=bool(truncated), info=info)


def _usage_code(error: UsageError) -> Code:
    if isinstance(error, Unsupported):
        return Code.UNSUPPORTED
    return Code.EPISODE_OVER if isinstance(error, EpisodeOver) else Code.USAGE


def _name(verb: Verb) -> str:
    return type(verb).__name__.lower()
