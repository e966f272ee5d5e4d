"""The rules of sessions. This module sees frames and environments, never a socket.

The protocol page describes the same rules, and a state machine test compares them with a model:

- A call with a new, larger ``seq`` runs once. The same ``seq`` with the same verb is answered from memory, or joins the call
  that still runs; with another verb it is a ``conflict``. A smaller ``seq`` is ``stale``.
- A refused call (``busy``, ``draining``) was not accepted: the client may send it again under the same ``seq``.
- One call runs at a time. Only ``Close`` may interrupt it.
- A call that exceeds its deadline is abandoned, and its episode with it: the state of the environment is unknown.
- The code of an environment runs under the owner of its session (``rollout.driving``): what it raises, cancels or refuses
  to end costs its own session.
- A session that its client does not renew during the lease is closed. It belongs to the token that opened it.
"""

import asyncio
from collections.abc import Callable
from sys import getsizeof
from time import monotonic, perf_counter
from typing import Any

import msgspec

from palestra.adapters.ownership import guarded_task
from palestra.errors import EnvError, InfrastructureError, SchemaError
from palestra.rollouts.driving import CallOutcome, Overrun, tried
from palestra.serve.faults import RETRY_AFTER, fault_of
from palestra.serve.host import Host
from palestra.serve.metrics import Metrics
from palestra.serve.session import ServerSession
from palestra.serve.shares import Shares
from palestra.serve.verbs import VerbRunner, run_now
from palestra.serve.wire import (
    PROTOCOL_VERSION,
    Beat,
    CallFrame,
    Close,
    Code,
    Fault,
    FromServer,
    Hello,
    ReplyFrame,
    ResetFrame,
    Result,
    ServerLimits,
    StepFrame,
    Verb,
    Welcome,
    check_depth,
    decode_frame,
    encode_frame,
)

__all__ = ["Sessions"]

CALL_BYTES = 2048
"""Bytes of a session's last call and answer beside their text and data."""
COPIES = 2
"""An answer is held for repetition and, until the client has read it, to be sent."""
PER_BYTE = 32
"""Bytes that a byte of a frame takes at most as Python objects."""


class Sessions:
    """All sessions of one server."""

    def __init__(self, host: Host, limits: ServerLimits, owners: int = 1, clock: Callable[[], float] = monotonic) -> None:
        self.host = host
        self.limits = limits
        self.metrics = Metrics()
        self.draining = False
        self._clock = clock
        self._table: dict[str, ServerSession] = {}
        self._opened = Shares(limits.max_sessions, owners)
        self._runner = VerbRunner(host, Shares(limits.max_workers, owners), close_seconds=limits.ttl)
        self._waiting = Shares(limits.max_waiting, owners)
        self._remembered = Shares(limits.max_remembered, owners, least=2 * limits.max_message)
        self.unfinished = Shares(limits.max_unfinished, owners, least=limits.max_message)
        """Bytes of frames and bodies that have arrived in part. The code that reads them keeps count."""

    def __len__(self) -> int:
        return len(self._table)

    @property
    def playing(self) -> int:
        """Number of sessions in the middle of an episode."""
        return sum(session.playing for session in self._table.values())

    # ------------------------------------------------------------------------------------------------- opening and ending

    def hello(self, owner: bytes, hello: Hello) -> tuple[ServerSession, Welcome] | Fault:
        """Open a session, or resume one."""
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
        if not self._opened.room(owner):
            return self._busy(f"this token has {self._opened.share} sessions open, which is its share")
        session = ServerSession(offer, owner, min(hello.max_message, self.limits.max_message))
        self._table[session.id] = session
        self._opened.take(owner)
        self.metrics.opened += 1
        return session, self._welcome(session)

    def find(self, owner: bytes, id: str) -> ServerSession | None:
        """Return the session if it exists and belongs to ``owner``."""
        session = self._table.get(id)
        return session if session is not None and session.owner == owner else None

    def renew(self, session: ServerSession) -> None:
        """Start the lease of ``session`` again."""
        session.seen = self._clock()

    def end(self, session: ServerSession) -> None:
        """Remove ``session`` now and close its environment in the background."""
        self._remove(session)
        if session.running is not None:
            session.running.cancel()
        self._runner.abandon(session)

    def expire(self) -> list[ServerSession]:
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
        await self._runner.all_closed()

    # ------------------------------------------------------------------------------------------------------------- calls

    def take(self, session: ServerSession, call: CallFrame, size: int = 0) -> bytes:
        """Return the answer to ``call``, a frame of ``size`` bytes; empty if ``session.deliver`` will receive it later."""
        session.seen = self._clock()
        if call.seq <= session.seq:
            return self._earlier(session, call)
        weight = _weight(call.verb, size)
        refusal = self._refusal(session, call, weight)
        if refusal is not None:
            return encode_frame(msgspec.structs.replace(refusal, seq=call.seq, request=call.request))
        session.seq, session.verb, session.request, session.reply = call.seq, call.verb, call.request, b""
        self._keep(session, weight)
        if session.offer.in_place:
            return self._run_in_place(session, call)
        abandoned = session.running  # not None only if this call is Close
        session.running = guarded_task(self._run(session, call, abandoned))
        # A callback, because it also runs for a task that was cancelled before it started.
        session.running.add_done_callback(lambda _: self._waiting.give_back(session.owner))
        self._waiting.take(session.owner)
        return b""

    async def answer(self, session: ServerSession, call: CallFrame, size: int = 0) -> bytes:
        """Wait for the answer to ``call`` and return it."""
        frame = self.take(session, call, size)
        if session.running is not None and (session.seq, session.verb) == (call.seq, call.verb):
            await asyncio.wait([session.running])
            frame = session.reply
        return frame or encode_frame(self._fault(Code.NO_SESSION, "the session ended", seq=call.seq, request=call.request))

    def _earlier(self, session: ServerSession, call: CallFrame) -> bytes:
        if call.seq < session.seq:
            code, message = Code.STALE, f"call {call.seq} is over; the last call was {session.seq}"
        elif call.verb != session.verb:
            code, message = Code.CONFLICT, f"call {call.seq} was sent before with another verb"
        elif not session.reply:
            session.request = call.request  # the answer carries the latest request number
            return encode_frame(Beat(request=call.request))
        else:
            self.metrics.repeated += 1
            reply = decode_frame(session.reply, FromServer)
            return encode_frame(msgspec.structs.replace(reply, request=call.request))
        return encode_frame(self._fault(code, message, seq=call.seq, request=call.request))

    def _refusal(self, session: ServerSession, call: CallFrame, weight: int) -> Fault | None:
        if session.id not in self._table:
            return self._fault(Code.NO_SESSION, "the session has ended")
        if isinstance(call.verb, Close):
            return None
        if session.running is not None:
            return self._busy(f"call {session.seq} is still running")
        if call.deadline > self.limits.max_deadline:
            return self._fault(
                Code.USAGE, f"the deadline is {call.deadline:g} s; at most {self.limits.max_deadline:g} s are allowed"
            )
        if not session.offer.in_place and not self._waiting.room(session.owner):
            return self._busy(f"{self._waiting.share} calls of this token are running, which is its share")
        # The session discards its last call and answer now.
        if not self._remembered.room(session.owner, weight + session.answered - session.kept):
            return self._busy(self._too_much())
        if isinstance(call.verb, ResetFrame):
            return self._no_reset(session, call.verb)
        if isinstance(call.verb, StepFrame) and len(call.verb.action) > self.limits.max_action:
            size = f"the action has {len(call.verb.action)} characters"
            return self._fault(Code.TOO_LARGE, f"{size}; at most {self.limits.max_action} are taken (max_action)")
        if not session.playing and isinstance(call.verb, StepFrame):
            return self._fault(Code.EPISODE_OVER, "this episode has ended or has not begun; call reset first")
        if session.env is None:
            return self._fault(Code.EPISODE_OVER, "there is no episode; call reset first")
        return None

    def _no_reset(self, session: ServerSession, verb: ResetFrame) -> Fault | None:
        if self.draining:
            return self._fault(Code.DRAINING, "this server is about to stop", retry_after=RETRY_AFTER)
        needs_worker = session.offer.isolated and session.env is None
        if needs_worker and not self._runner.workers.room(session.owner):
            return self._busy(f"{self._runner.workers.share} worker processes of this token are in use, which is its share")
        if verb.task.env != session.offer.spec.id:
            return self._fault(
                Code.USAGE, f'the task is of "{verb.task.env}", and this session plays "{session.offer.spec.id}"'
            )
        if refused := session.offer.refused(verb.task.params):
            return self._fault(Code.USAGE, refused)
        try:
            check_depth(verb.task.params)
        except SchemaError as error:
            return self._fault(Code.BAD_FRAME, f"the task's params are {error}")
        return None

    def _run_in_place(self, session: ServerSession, call: CallFrame) -> bytes:
        began = perf_counter()
        answer = self._outcome(session, call.verb, session.context.run(run_now, self._runner.perform(session, call.verb)))
        seconds = perf_counter() - began
        self.metrics.called(_name(call.verb), seconds)
        if seconds > call.deadline:
            answer = self._overrun(session, call)
        session.reply = self._encoded(session, answer)
        return session.reply

    async def _run(self, session: ServerSession, call: CallFrame, abandoned: "asyncio.Task[None] | None") -> None:
        began = perf_counter()
        try:
            if abandoned is not None:
                abandoned.cancel()
                await asyncio.wait([abandoned])
            left = max(call.deadline - (perf_counter() - began), 0.0)
            performed = await tried(self._runner.perform(session, call.verb), left, session.strangers)
            overrun = type(performed.error) is Overrun
            answer = self._overrun(session, call) if overrun else self._outcome(session, call.verb, performed)
        finally:
            if session.running is asyncio.current_task():
                session.running = None
            self.metrics.called(_name(call.verb), perf_counter() - began)
        session.reply = self._encoded(session, answer)
        if session.deliver is not None:
            session.deliver(session.reply)

    def _overrun(self, session: ServerSession, call: CallFrame) -> Fault:
        self._runner.abandon(session)
        return self._fault(Code.DEADLINE, f"the call's deadline of {call.deadline:.3g} s passed; the episode is lost")

    def _outcome(self, session: ServerSession, verb: Verb, performed: CallOutcome) -> Result | Fault:
        if isinstance(verb, Close):
            self._remove(session)
        if performed.error is not None:
            return self._counted(fault_of(performed.error))
        result: Result = performed.value
        return result

    def _remove(self, session: ServerSession) -> None:
        if self._table.pop(session.id, None) is not None:
            self._opened.give_back(session.owner)
            self._keep(session, 0)

    def _keep(self, session: ServerSession, size: int) -> None:
        """Count ``size`` bytes for the last call and answer of ``session``."""
        self._remembered.take(session.owner, size - session.kept)
        session.kept = size

    # ----------------------------------------------------------------------------------------------------------- answers

    def _welcome(self, session: ServerSession) -> Welcome:
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

    def _encoded(self, session: ServerSession, answer: Result | Fault) -> bytes:
        seq, request = session.seq, session.request
        if isinstance(answer, Fault):
            return encode_frame(msgspec.structs.replace(answer, seq=seq, request=request))
        try:
            frame = encode_frame(ReplyFrame(seq=seq, request=request, result=answer))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            return self._unsendable(session, f"what the environment returned cannot be sent: {error}")
        if len(frame) > session.max_message:
            problem = f"what the environment returned takes {len(frame)} bytes; at most {session.max_message} can be sent"
            return self._unsendable(session, problem)
        if session.id in self._table:
            weight = COPIES * len(frame)
            if not self._remembered.room(session.owner, weight):
                self._runner.abandon(session)
                lost = InfrastructureError(f"the episode is lost: {self._too_much()}")
                return self._encoded(session, self._counted(fault_of(lost)))
            session.answered = weight
            self._keep(session, session.kept + weight)
        return frame

    def _too_much(self) -> str:
        share = f"its share is {self._remembered.share} bytes (max_remembered)"
        return f"the calls and answers kept for this token's sessions take too much memory; {share}"

    def _unsendable(self, session: ServerSession, problem: str) -> bytes:
        return self._encoded(session, self._counted(fault_of(EnvError(problem))))

    def _fault(self, code: Code, message: str, **details: Any) -> Fault:
        return self._counted(Fault(code=code, message=message, **details))

    def _busy(self, message: str) -> Fault:
        return self._fault(Code.BUSY, message, retry_after=RETRY_AFTER)

    def _counted(self, fault: Fault) -> Fault:
        self.metrics.faults[fault.code] += 1
        return fault


def _weight(verb: Verb, size: int) -> int:
    """The bytes that the last call of a session takes, whose frame had ``size`` bytes."""
    return CALL_BYTES + (getsizeof(verb.action) if isinstance(verb, StepFrame) else PER_BYTE * size)


def _name(verb: Verb) -> str:
    return str(verb.__struct_config__.tag)
