"""An engine without a model, whose tokens a function writes, and a renderer without a tokenizer. For tests of their users."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from palestra.core import EngineSession, Generation, Reply, Sampling
from palestra.errors import UsageError
from palestra.foundation.encoding import Ints, floats, ints
from palestra.trajectory import Finish, Message, Tokens, text_of

__all__ = ["ByteRenderer", "Script", "ScriptedEngine"]

Script = Callable[[Ints, Sampling], Sequence[int]]
"""Returns the tokens that follow a prompt."""


class ScriptedEngine:
    """Sample what ``script(prompt, sampling)`` returns, up to a stop id or ``max_tokens``.

    The log-prob of the i-th token is ``-(i + 1) / 64``, so a test can tell the tokens of a turn apart.
    """

    def __init__(self, script: Script, *, context_length: int = 131_072) -> None:
        self.context_length = context_length
        self.version = 0
        self._script = script
        self._running = asyncio.Event()
        self._running.set()

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        if len(prompt) + sampling.max_tokens > self.context_length:
            raise UsageError(
                f"{len(prompt)} prompt ids and {sampling.max_tokens} new ones do not fit the context of {self.context_length}"
            )
        await self._running.wait()
        written = list(self._script(prompt, sampling))
        stop = next((index + 1 for index, token in enumerate(written) if token in sampling.stop_ids), len(written))
        ids = written[: min(stop, sampling.max_tokens)]
        finish = Finish.LENGTH if len(ids) < stop else Finish.STOP
        logprobs = [-(index + 1) / 64 for index in range(len(ids))]
        return Generation(Tokens(prompt, ints(ids), floats(logprobs), self.version), finish)

    async def update_weights(self, source: Any, version: int) -> None:
        self.version = version

    async def pause(self) -> None:
        self._running.clear()

    async def resume(self) -> None:
        self._running.set()

    async def close(self) -> None:
        pass


class ByteRenderer:
    """Render messages without a tokenizer: a byte of UTF-8 is a token, and the token 0 ends a message. Tools are not shown."""

    stop_ids: tuple[int, ...] = (0,)

    def with_tools(self, tools: object) -> Self:
        return self

    def first(self, messages: Sequence[Message]) -> Ints:
        text = "".join(f"{message.role}:{text_of(message.content)}\0" for message in messages)
        return ints(np.frombuffer(text.encode(), dtype=np.uint8))

    def extend(self, prompt: Ints, sampled: Ints, messages: Sequence[Message]) -> Ints | None:
        closed = len(sampled) and int(sampled[-1]) in self.stop_ids
        return ints(self.first(messages) if closed else [*self.stop_ids, *self.first(messages)])

    def read(self, prompt: Ints, ids: Ints) -> Reply:
        return Reply(bytes(ids[ids != 0].tolist()).decode(errors="replace"))
