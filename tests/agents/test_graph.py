"""Random conversations: whatever an agent does to its history, the recording is what the engine saw and sampled."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agents.driving import Agent
from tests.agents.test_gateway import STOP

from palestra.agents import CallRole, Gateway, Recording
from palestra.core import Sampling
from palestra.foundation.encoding import Ints
from palestra.testing.scripted import ByteRenderer, ScriptedEngine
from palestra.trajectory import Tokens

DIALECTS = ("chat", "responses", "anthropic")

moves = st.lists(
    st.tuples(
        st.sampled_from(["user", "user", "user", "retry", "edit reply", "drop", "system", "rewind", "resample", "restart"]),
        st.integers(0, 3),
    ),
    max_size=10,
)


class Recorder(ScriptedEngine):
    """Remembers what it sampled."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.seen: list[Tokens] = []
        super().__init__(lambda prompt, sampling: [*map(ord, texts[len(self.seen) % len(texts)]), STOP])

    async def generate(self, prompt: Ints, sampling: Sampling, session: Any = None) -> Any:
        generation = await super().generate(prompt, sampling, session)
        self.seen.append(generation.tokens)
        return generation


def check(recording: Recording, seen: list[Tokens]) -> None:
    spans = [
        (segment.ids[: span.start].tolist(), segment.ids[span.start : span.stop].tolist())
        for segments in recording.segments.values()
        for segment in segments
        for span in segment.spans
    ]
    assert sorted(spans) == sorted((tokens.prompt.tolist(), tokens.ids.tolist()) for tokens in seen)
    assert len(recording.calls) == len(seen) == sum(recording.links.values())
    assert {call.number for call in recording.calls if call.role is CallRole.DISCARDED}.isdisjoint(
        {call.parent for call in recording.calls if call.link == "extended"}
    )


@dataclass
class Player:
    """An agent that does what the moves say."""

    agent: Agent
    sent: bytes = b""

    async def move(self, kind: str, number: int) -> None:
        agent = self.agent
        if kind == "retry" and self.sent:
            await agent.send(self.sent)
            return
        self.change(kind, number)
        agent.user(f"question {number}")
        self.sent = agent.body()
        response = await agent.send(self.sent)
        agent.headers.pop("Idempotency-Key", None)
        if response.status == 200:
            agent.take(agent.read(response))

    def change(self, kind: str, number: int) -> None:
        agent = self.agent
        if kind == "resample":
            agent.headers["Idempotency-Key"] = f"k{len(agent.headers)}{number}{len(self.sent)}"
        elif kind == "edit reply":
            for item in agent.history:
                if item.get("role") == "assistant":
                    item["content"] = f"edited {number}"
        elif kind == "drop":
            del agent.history[1 : 1 + 2 * number]
        elif kind == "system":
            agent.system = f"system {number}"
        elif kind == "rewind":
            del agent.history[1 + 2 * number :]
        elif kind == "restart":
            agent.history.clear()


@settings(max_examples=60, deadline=None)
@given(moves, st.sampled_from(DIALECTS), st.booleans(), st.lists(st.sampled_from(["yes", "no", "a longer reply"]), min_size=1))
async def test_a_recording_is_what_the_engine_saw_and_sampled(
    moves: list[tuple[str, int]], dialect: Any, stream: bool, texts: list[str]
) -> None:
    engine = Recorder(texts)
    gateway = Gateway(engine, lambda tools: ByteRenderer())
    episode = gateway.open()
    player = Player(Agent(gateway, episode, dialect, stream))
    for kind, number in moves:
        await player.move(kind, number)
    check(await gateway.close(episode), engine.seen)
