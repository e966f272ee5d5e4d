"""An engine without a model: a function writes the tokens. For tests of everything that surrounds an engine."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from palestra.core import Generation, Sampling, Session
from palestra.encoding import Ints, floats, ints
from palestra.trajectory import Finish, Tokens

__all__ = ["ScriptedEngine"]

Script = Callable[[Ints, Sampling], Sequence[int]]


class ScriptedEngine:
    """Samples what ``script(prompt, sampling)`` says, cut at ``max_tokens``; the i-th token has the log-prob -(i + 1) / 64."""

    def __init__(self, script: Script, *, context_length: int = 131_072) -> None:
        self.context_length = context_length
        self.version = 0
        self._script = script
        self._running = asyncio.Event()
        self._running.set()

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
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
