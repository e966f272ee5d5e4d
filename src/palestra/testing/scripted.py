"""An engine without a model: a function writes the tokens. For tests of everything that surrounds an engine."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from palestra.core import EngineSession, Generation, Sampling
from palestra.encoding import Ints, floats, ints
from palestra.errors import UsageError
from palestra.trajectory import Finish, Tokens

__all__ = ["Script", "ScriptedEngine"]

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
