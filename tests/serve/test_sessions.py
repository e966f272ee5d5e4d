"""The rules of a session, compared with a small model under any order of calls, repeats, losses and waits."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from palestra.errors import UsageError
from palestra.serve import wire
from palestra.serve.faults import LONGEST_MESSAGE, fault_of
from palestra.serve.host import Host
from palestra.serve.session import ServerSession
from palestra.serve.sessions import Sessions
from palestra.trajectory import Task
from tests.serve.tally import REFERENCE, reward_of, told

TTL = 60.0
LIMITS = wire.ServerLimits(ttl=TTL, max_sessions=6)
SHARE = LIMITS.max_sessions // 2
VERBS = st.one_of(
    st.builds(wire.ResetFrame, st.builds(Task, st.just(REFERENCE), st.integers(0, 3))),
    st.builds(wire.StepFrame, st.sampled_from(["a", "b", "end"])),
    st.just(wire.Ask("oracle")),
    st.builds(wire.SeedActions, st.integers(0, 3)),
)
OWNERS = st.sampled_from([b"ann", b"bob"])


@dataclass
class Model:
    """What a session should be."""

    session: ServerSession
    owner: bytes
    seen: float
    seq: int = 0
    verb: wire.Verb | None = None
    answer: Any = None
    seed: int | None = None
    """The task being played; ``None`` before the first reset."""
    turn: int = 0
    over: bool = True
    open: bool = True

    def expected(self, verb: wire.Verb) -> Any:
        """What the environment should say, and how it changes."""
        if isinstance(verb, wire.ResetFrame):
            self.seed, self.turn, self.over = verb.task.seed, 0, False
            return wire.Shown(told(self.seed, 0, ""), {})
        if isinstance(verb, wire.StepFrame):
            if self.over or self.seed is None:
                return wire.Code.EPISODE_OVER
            self.turn += 1
            self.over = verb.action == "end"
            reward = reward_of(self.seed, self.turn, verb.action)
            return wire.Stepped(told(self.seed, self.turn, verb.action), reward, self.over, False, {"turn": self.turn})
        if self.seed is None:
            return wire.Code.EPISODE_OVER
        return wire.Code.UNSUPPORTED if isinstance(verb, wire.Ask) else wire.Done()


class SessionRules(RuleBasedStateMachine):
    """Opens, calls, repeats, contradicts, waits, resumes and closes; the model says what should come of it."""

    sessions = Bundle("sessions")

    @initialize(target=sessions, seed=st.integers(0, 3))
    def start(self, seed: int) -> Any:
        self.loop = asyncio.new_event_loop()
        self.now = 1000.0
        self.requests = 0
        self.server = Sessions(Host([REFERENCE]), LIMITS, 2, clock=lambda: self.now)
        self.models: list[Model] = []
        first = self.open(b"ann")
        self.call(first, wire.ResetFrame(Task(REFERENCE, seed)), 1)
        return first

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            self.loop.run_until_complete(self.server.end_all())
            self.loop.close()

    def take(self, model: Model, seq: int, verb: wire.Verb) -> wire.ReplyFrame | wire.Fault:
        self.requests += 1

        async def ask() -> bytes:
            return self.server.take(model.session, wire.CallFrame(seq, self.requests, 10.0, verb))

        model.seen = self.now
        frame = wire.decode_frame(self.loop.run_until_complete(ask()), wire.FromServer)
        assert isinstance(frame, wire.ReplyFrame | wire.Fault)
        assert (frame.seq, frame.request) == (seq, self.requests), "an answer names the call and the sending it answers"
        return frame

    @rule(target=sessions, owner=OWNERS)
    def another(self, owner: bytes) -> Any:
        return self.open(owner)

    def open(self, owner: bytes) -> Any:
        found = self.server.hello(owner, wire.Hello((1,), REFERENCE))
        full = sum(model.open for model in self.models if model.owner == owner) >= SHARE
        if self.server.draining or full:
            assert isinstance(found, wire.Fault)
            assert found.code is (wire.Code.DRAINING if self.server.draining else wire.Code.BUSY)
            assert found.retry_after > 0
            return multiple()
        assert not isinstance(found, wire.Fault)
        session, welcome = found
        assert len(welcome.session) == 32
        assert welcome.seq == 0
        model = Model(session, owner, self.now)
        self.models.append(model)
        return model

    @rule(model=sessions, owner=OWNERS)
    def resume(self, model: Model, owner: bytes) -> None:
        found = self.server.hello(owner, wire.Hello((1,), session=model.session.id))
        if model.open and owner == model.owner:
            assert not isinstance(found, wire.Fault)
            assert found[0] is model.session
            assert found[1].seq == model.seq
            model.seen = self.now
        else:
            assert isinstance(found, wire.Fault)
            assert found.code is wire.Code.NO_SESSION

    @rule(model=sessions, verb=VERBS, gap=st.integers(1, 3))
    def go_on(self, model: Model, verb: wire.Verb, gap: int) -> None:
        self.call(model, verb, gap)

    def call(self, model: Model, verb: wire.Verb, gap: int) -> None:
        seq = model.seq + gap
        frame = self.take(model, seq, verb)
        if not model.open:
            assert isinstance(frame, wire.Fault)
            assert frame.code is wire.Code.NO_SESSION
            return
        if self.server.draining and isinstance(verb, wire.ResetFrame):
            assert isinstance(frame, wire.Fault)
            assert frame.code is wire.Code.DRAINING
            return
        expected = model.expected(verb)
        if expected is wire.Code.EPISODE_OVER:  # refused, so the number is still free
            assert isinstance(frame, wire.Fault)
            assert frame.code is expected
            return
        model.seq, model.verb, model.answer = seq, verb, expected
        self.check(frame, expected)

    @rule(model=sessions)
    def repeat(self, model: Model) -> None:
        if model.verb is not None:  # an ended session still knows its last answer
            self.check(self.take(model, model.seq, model.verb), model.answer)

    @rule(model=sessions, verb=VERBS)
    def contradict(self, model: Model, verb: wire.Verb) -> None:
        if model.open and model.verb not in (None, verb):
            frame = self.take(model, model.seq, verb)
            assert isinstance(frame, wire.Fault)
            assert frame.code is wire.Code.CONFLICT

    @rule(model=sessions, verb=VERBS, back=st.integers(1, 3))
    def arrive_late(self, model: Model, verb: wire.Verb, back: int) -> None:
        if model.open and model.seq - back >= 0:
            frame = self.take(model, model.seq - back, verb)
            assert isinstance(frame, wire.Fault)
            assert frame.code is wire.Code.STALE

    @rule(model=sessions)
    def beat(self, model: Model) -> None:
        if model.open:
            self.server.renew(model.session)
            model.seen = self.now

    @rule(model=sessions)
    def close(self, model: Model) -> None:
        if model.open:
            self.check(self.take(model, model.seq + 1, wire.Close()), wire.Done())
            model.seq, model.verb, model.answer, model.open = model.seq + 1, wire.Close(), wire.Done(), False

    @rule(seconds=st.sampled_from([1.0, 10.0, 30.0, 59.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

        async def sweep() -> set[str]:
            return {session.id for session in self.server.expire()}

        gone = self.loop.run_until_complete(sweep())
        due = {model.session.id for model in self.models if model.open and model.seen < self.now - TTL}
        assert gone == due
        for model in self.models:
            model.open = model.open and model.session.id not in gone

    @rule(draining=st.booleans())
    def drain(self, draining: bool) -> None:
        self.server.draining = draining

    def check(self, frame: wire.ReplyFrame | wire.Fault, expected: Any) -> None:
        if isinstance(expected, wire.Code):
            assert isinstance(frame, wire.Fault)
            assert frame.code is expected
        else:
            assert isinstance(frame, wire.ReplyFrame)
            assert frame.result == expected

    @invariant()
    def as_many_as_are_open(self) -> None:
        if hasattr(self, "server"):
            assert len(self.server) == sum(model.open for model in self.models)


SessionRules.TestCase.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestSessionRules = SessionRules.TestCase


def test_a_client_learns_no_secret_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "planted-service-token")
    for error in (RuntimeError, UsageError):
        fault = fault_of(error("cannot log in with planted-service-token at https://me:hunter22@db.example/"))
        assert fault.message == "cannot log in with *** at https://***@db.example/"
        cut = fault_of(error("x" * (LONGEST_MESSAGE - 10) + "planted-service-token" + "x" * 10**5)).message
        assert len(cut) == LONGEST_MESSAGE
        assert "planted" not in cut
