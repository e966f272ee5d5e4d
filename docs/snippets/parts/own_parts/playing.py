"""What plays: an environment, a wrapper, a tool, a policy, a history and an engine."""

from typing import Any

import msgspec

import palestra
from palestra.core import Conversation, Engine, EngineSession, Generation, Sampling
from palestra.inference.choice import local_engine
from palestra.inference.setup import EngineSetup
from palestra.policies.sampled import SampledPolicy
from palestra.tools import tool
from palestra.trajectory import Completion, Message

WORDS = ("red", "green", "blue")


class Recite(palestra.Env):
    """Shows a word per turn. The agent repeats it."""

    def __init__(self, turns: int = 2) -> None:
        self.turns = turns

    def reset(self, *, seed: int | None = None, task: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.left = self.turns
        return self._show(), {}

    def step(self, action: str) -> palestra.Step:
        right = action.strip() == self.word
        self.left -= 1
        info = {"answer": self.word, "success": right}
        return palestra.Step(self._show(), float(right), self.left == 0, False, info)

    def oracle(self) -> str:
        return self.word

    def sample_random_action(self) -> str:
        return str(self.action_rng.choice(WORDS))

    def _show(self) -> str:
        self.word = str(self.rng.choice(WORDS))
        return f"Repeat: {self.word}"


class Fee(palestra.Wrapper):
    """Takes a fee from the reward of every step."""

    def __init__(self, env: palestra.AsyncEnv, amount: float = 0.01) -> None:
        super().__init__(env)
        self.amount = amount

    def reward(self, reward: float) -> float:
        return reward - self.amount


@tool
def count_letters(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


class BriefStart:
    """Allows fewer tokens in the first turn than in the others."""

    def __init__(self, sampled: SampledPolicy, tokens: int) -> None:
        brief = msgspec.structs.replace(sampled.sampling, max_tokens=tokens)
        self.first, self.later = sampled.with_sampling(brief), sampled

    async def act(self, conversation: Conversation) -> Completion:
        return await (self.later if conversation.turn else self.first).act(conversation)


class LastMessages:
    """Shows the model the last messages only."""

    def __init__(self, count: int) -> None:
        self.count = count

    async def view(self, conversation: Conversation, ask: Any) -> list[Message]:
        return conversation.messages[-self.count :]


class CountingEngine:
    """The local engine, which prints how many replies it sampled."""

    def __init__(self, setup: EngineSetup, label: str = "replies") -> None:
        self.engine: Engine = local_engine(setup)
        self.context_length = self.engine.context_length
        self.label, self.count = label, 0

    async def generate(self, prompt: Any, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        self.count += 1
        return await self.engine.generate(prompt, sampling, session)

    async def update_weights(self, source: Any, version: int) -> None:
        await self.engine.update_weights(source, version)

    async def pause(self) -> None:
        await self.engine.pause()

    async def resume(self) -> None:
        await self.engine.resume()

    async def close(self) -> None:
        print(f"{self.count} {self.label}")
        await self.engine.close()
