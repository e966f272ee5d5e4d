"""An engine that remembers everything it saw and sampled, and the proof that a recording is exactly that."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tests.rendering.zoo import tokenizer

from palestra.agents import Recording
from palestra.core import EngineSession, Generation, Sampling
from palestra.encoding import Ints, floats, ints
from palestra.rendering import TemplateRenderer
from palestra.trajectory import Finish, Tokens

Write = Callable[[str, Sampling], str]
"""The decoded prompt → the reply of the model, without its stop token."""


@cache
def words() -> Any:
    return tokenizer("qwen3published")


class Witness:
    """Sample what ``write`` returns. Every token of a run has a log-prob of its own."""

    def __init__(self, write: Write | Sequence[str], *, context_length: int = 100_000) -> None:
        replies = None if callable(write) else iter(write)
        self._write: Write = write if callable(write) else lambda _, __: next(replies)  # type: ignore[arg-type]
        self.context_length = context_length
        self.version = 0
        self.sampled: list[Tokens] = []
        self.samplings: list[Sampling] = []
        self.gate = asyncio.Event()
        """Replies wait for it."""
        self.gate.set()
        self.change_at: int | None = None
        """The weights change before this token of the next reply."""
        self.fail_next = 0
        self.begun = 0
        self._drawn = 0

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        self.begun += 1
        self.samplings.append(sampling)
        if self.fail_next:
            self.fail_next -= 1
            raise RuntimeError("the engine broke, at /secret/path")
        text = self._write(words().decode(prompt.tolist()), sampling)
        await self.gate.wait()
        stopped = next((text[: text.find(stop) + len(stop)] for stop in sampling.stop if stop in text), None)
        ids = words().encode(stopped if stopped is not None else text, add_special_tokens=False)
        if stopped is None:
            ids = [*ids, words().convert_tokens_to_ids("<|im_end|>")]
        finish = Finish.LENGTH if len(ids) > sampling.max_tokens else Finish.STOP
        ids = ids[: sampling.max_tokens]
        logprobs = [-(self._drawn + index + 1) / 2**16 for index in range(len(ids))]
        self._drawn += len(ids)
        first, updates = self.version, ()
        if self.change_at is not None:
            self.version += 1
            updates, self.change_at = ((self.change_at, self.version),), None  # type: ignore[assignment]
        tokens = Tokens(prompt, ints(ids), floats(logprobs), first, updates)
        self.sampled.append(tokens)
        return Generation(tokens, finish)

    async def update_weights(self, source: Any, version: int) -> None:
        self.version = version

    async def pause(self) -> None: ...

    async def resume(self) -> None: ...

    async def close(self) -> None: ...


@cache
def _renderer(tools: str, append_only: bool) -> TemplateRenderer:
    import json

    return TemplateRenderer(words(), append_only=append_only, options={"tools": json.loads(tools) or None})


def renderers(tools: tuple[dict[str, Any], ...], *, append_only: bool = True) -> TemplateRenderer:
    """The renderer for a request's tools, made once per test run."""
    import json

    return _renderer(json.dumps(tools), append_only)


def prove(recording: Recording, witness: Witness) -> None:
    """Assert that the recording holds exactly what the engine saw and sampled, every sampled token once."""
    expected = []
    for tokens in witness.sampled:
        for start, stop, version in tokens.runs:
            context = (*tokens.prompt.tolist(), *tokens.ids[:start].tolist())
            expected.append(
                (context, tuple(tokens.ids[start:stop].tolist()), tuple(tokens.logprobs[start:stop].tolist()), version)
            )
    recorded = []
    for segments in recording.segments.values():
        for segment in segments:
            at = 0
            for span in segment.spans:
                size = span.stop - span.start
                logprobs = tuple(segment.logprobs[at : at + size].tolist())
                context = tuple(segment.ids[: span.start].tolist())
                recorded.append((context, tuple(segment.ids[span.start : span.stop].tolist()), logprobs, span.version))
                at += size
    assert sorted(recorded) == sorted(expected)
    drawn = [number for one in recorded for number in one[2]]
    assert len(drawn) == len(set(drawn)), "a sampled token stands in two places"
    assert len(recording.calls) == len(witness.sampled)
