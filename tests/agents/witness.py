"""An engine that remembers everything it saw and sampled, and the proof that a recording is exactly that."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

from tests.inference.rendering.zoo import tokenizer

from palestra.agents import Recording
from palestra.core import EngineSession, Generation, Sampling
from palestra.foundation.encoding import Ints, floats, ints
from palestra.inference.rendering import TemplateRenderer
from palestra.trajectory import Finish, Segment, Tokens

Write = Callable[[str, Sampling], str]
"""The decoded prompt → the reply of the model, without its stop token."""


@cache
def words() -> Any:
    return tokenizer("qwen3published")


class Witness:
    """Sample what ``write`` returns. Every token of a run has a log-prob of its own."""

    def __init__(self, write: Write | Sequence[str], *, context_length: int = 100_000, tokenizer: Any = None) -> None:
        replies = None if callable(write) else iter(write)
        self._write: Write = write if callable(write) else lambda _, __: next(replies)  # type: ignore[arg-type]
        self.context_length = context_length
        self._words = tokenizer or words()
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
        text = self._write(self._words.decode(prompt.tolist()), sampling)
        await self.gate.wait()
        stopped = next((text[: text.find(stop) + len(stop)] for stop in sampling.stop if stop in text), None)
        ids = self._words.encode(stopped if stopped is not None else text, add_special_tokens=False)
        if stopped is None:
            ids = [*ids, self._words.convert_tokens_to_ids("<|im_end|>")]
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


def renderers_of(tokenizer: Any, *, append_only: bool = True) -> Callable[[tuple[dict[str, Any], ...]], TemplateRenderer]:
    """Return what gives a gateway its renderers: each is made once per set of tools."""

    @cache
    def renderer(tools: str) -> TemplateRenderer:
        return TemplateRenderer(tokenizer, append_only=append_only, options={"tools": json.loads(tools) or None})

    return lambda tools: renderer(json.dumps(tools))


_renderers = cache(lambda append_only: renderers_of(words(), append_only=append_only))


def renderers(tools: tuple[dict[str, Any], ...], *, append_only: bool = True) -> TemplateRenderer:
    """The renderer for a request's tools, made once per test run."""
    return _renderers(append_only)(tools)


def prove(recording: Recording, witness: Witness) -> None:
    """Assert that the recording holds exactly what the engine saw and sampled, every sampled token once."""
    recorded = compare([recording], witness.sampled)
    drawn = [number for segment in recorded for number in segment.logprobs]
    assert len(drawn) == len(set(drawn)), "a sampled token stands in two places"
    assert len(recording.calls) == len(witness.sampled)


class Stretch(NamedTuple):
    """Tokens that were sampled in a row under one version of the weights."""

    context: tuple[int, ...]
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    version: int


def compare(recordings: Iterable[Recording], sampled: Iterable[Tokens]) -> list[Stretch]:
    """Assert that the recordings hold what an engine sampled, each token after the ids that the engine saw, and return it."""
    expected = [
        Stretch(
            (*tokens.prompt.tolist(), *tokens.ids[:start].tolist()),
            tuple(tokens.ids[start:stop].tolist()),
            tuple(tokens.logprobs[start:stop].tolist()),
            version,
        )
        for tokens in sampled
        for start, stop, version in tokens.runs
    ]
    recorded = [
        stretch
        for recording in recordings
        for segments in recording.segments.values()
        for segment in segments
        for stretch in _stretches(segment)
    ]
    assert sorted(recorded) == sorted(expected)
    return recorded


def _stretches(segment: Segment) -> Iterator[Stretch]:
    at = 0
    for span in segment.spans:
        size = span.stop - span.start
        yield Stretch(
            tuple(segment.ids[: span.start].tolist()),
            tuple(segment.ids[span.start : span.stop].tolist()),
            tuple(segment.logprobs[at : at + size].tolist()),
            span.version,
        )
        at += size
