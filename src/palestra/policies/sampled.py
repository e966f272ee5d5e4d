"""The policy that is trained: a renderer and an engine.

``conversation.memory`` keeps the token ids that the episode has rendered and sampled. The next prompt is exactly these ids and
those of the new messages; text is never tokenized twice. If the template or the history rewrites earlier messages, the prompt
is rendered again from the beginning, and a new segment starts.

``Completion.finish`` says whether the context was full, the reply was cut, or the reply was empty. Nothing is dropped.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from palestra.core import Conversation, Engine, EngineSession, Generation, Renderer, Sampling
from palestra.foundation.encoding import Ints, ints
from palestra.foundation.seeding import derive_seed
from palestra.foundation.telemetry import span
from palestra.policies.history import FullHistory, History
from palestra.policies.shots import NoShots, Shots
from palestra.trajectory import Completion, Finish, Message, Tokens, Usage

__all__ = ["SampledPolicy"]

_MEMORY = "sampled"


@dataclass
class _EpisodeMemory:
    """The policy's memory of one episode."""

    session: EngineSession = field(default_factory=EngineSession)
    shown: Sequence[Message] = ()
    """The messages that the last prompt rendered."""
    prompt: Ints = field(default_factory=lambda: ints([]))
    sampled: Ints = field(default_factory=lambda: ints([]))
    reply: str = ""
    """The text of ``sampled``."""
    notes: list[Tokens] = field(default_factory=list)
    calls: int = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> "_EpisodeMemory":
        """A copy for a conversation that branches off: it shares the ids, which never change, and has a session of its own."""
        return replace(self, session=EngineSession(), notes=list(self.notes))


class SampledPolicy:
    """A policy that samples token ids from an engine, and records them for training.

    Args:
        renderer: Turns messages into token ids and back.
        engine: Samples the tokens.
        sampling: Temperature, token limit and stop strings.
        history: How much of the episode the model sees; all by default.
        shots: Example turns to show before the episode; none by default.

    Example::

        policy = palestra.SampledPolicy(renderer_for(tokenizer), HFEngine.load("HuggingFaceTB/SmolLM2-135M-Instruct"))
    """

    name = "SampledPolicy"
    """The name in reports. Set it to the name of the model."""

    def __init__(
        self,
        renderer: Renderer,
        engine: Engine,
        sampling: Sampling | None = None,
        *,
        history: History | None = None,
        shots: Shots | None = None,
    ) -> None:
        self.renderer = renderer
        self.engine = engine
        self.sampling = sampling or Sampling()
        self.history = history or FullHistory()
        self.shots = shots or NoShots()
        self._prefixes: dict[tuple[Message, ...], Ints | None] = {}

    def with_sampling(self, sampling: Sampling) -> "SampledPolicy":
        """Return the same policy with other sampling settings."""
        return SampledPolicy(self.renderer, self.engine, sampling, history=self.history, shots=self.shots)

    async def act(self, conversation: Conversation) -> Completion:
        episode: _EpisodeMemory = conversation.memory.setdefault(_MEMORY, _EpisodeMemory())

        async def ask(messages: Sequence[Message]) -> str:
            prompt = await self._prompt(episode, tuple(messages), conversation)
            generation = await self._generate(prompt, conversation, episode)
            if generation is None:
                return ""
            episode.notes.append(generation.tokens)
            return self.renderer.read(generation.tokens.prompt, generation.tokens.ids).text

        shown = tuple(await self.history.view(conversation, ask))
        prompt = await self._prompt(episode, shown, conversation)
        generation = await self._generate(prompt, conversation, episode)
        notes, episode.notes = tuple(episode.notes), []
        if generation is None:
            return Completion("", Finish.OVERFLOW, notes=notes)
        tokens, finish = generation
        text, reasoning = self.renderer.read(tokens.prompt, tokens.ids)
        text = _cut(text, self.sampling.stop)
        episode.shown, episode.prompt, episode.sampled, episode.reply = shown, tokens.prompt, tokens.ids, text
        if not len(tokens.ids):
            finish = Finish.EMPTY
        calls = (*notes, tokens)
        usage = Usage(sum(len(call.prompt) for call in calls), sum(len(call.ids) for call in calls))
        return Completion(text, finish, reasoning, tokens, notes, usage)

    async def _prompt(self, episode: _EpisodeMemory, shown: tuple[Message, ...], conversation: Conversation) -> Ints:
        if added := self._added(episode, shown):
            tail = self.renderer.extend(episode.prompt, episode.sampled, added)
            if tail is not None:
                return ints(np.concatenate([episode.prompt, episode.sampled, tail]))
        shots = await self.shots.messages(conversation.task)
        return self._first(shots, shown) if shots else self.renderer.first(shown)

    def _added(self, episode: _EpisodeMemory, shown: tuple[Message, ...]) -> Sequence[Message]:
        """The messages that follow our last reply, if what stands before them is what we rendered and wrote."""
        before = len(episode.shown)
        if not before or len(shown) <= before + 1 or shown[:before] != tuple(episode.shown):
            return ()
        reply = shown[before]
        return shown[before + 1 :] if reply.role == "assistant" and reply.content == episode.reply else ()

    def _first(self, shots: tuple[Message, ...], shown: tuple[Message, ...]) -> Ints:
        """The shots and then ``shown``. The ids of the shots are computed once, where the template lets them stand alone."""
        system = tuple(message for message in shown[:1] if message.role == "system")
        key = (*system, *shots)
        if key not in self._prefixes:
            prompt = self.renderer.first((*key, *shown[len(system) :]))
            self._prefixes[key] = self._split(prompt, shown[len(system) :])
            return prompt
        prefix = self._prefixes[key]
        tail = None if prefix is None else self._tail(prefix, shown[len(system) :])
        if prefix is None or tail is None:
            return self.renderer.first((*key, *shown[len(system) :]))
        return ints(np.concatenate([prefix, tail]))

    def _split(self, prompt: Ints, shown: Sequence[Message]) -> Ints | None:
        """Return what of ``prompt`` stands before ``shown``; ``None`` if the two cannot be told apart."""
        tail = self._tail(prompt, shown)
        if tail is None or not np.array_equal(prompt[len(prompt) - len(tail) :], tail):
            return None
        return ints(prompt[: len(prompt) - len(tail)])

    def _tail(self, prefix: Ints, shown: Sequence[Message]) -> Ints | None:
        return self.renderer.extend(prefix, ints([self.renderer.stop_ids[0]]), shown)

    async def _generate(self, prompt: Ints, conversation: Conversation, episode: _EpisodeMemory) -> Generation | None:
        """Sample after ``prompt``; ``None`` if there is no room for a single token."""
        room = self.engine.context_length - len(prompt)
        if room < 1:
            return None
        wanted = self.sampling
        sampling = Sampling(
            max_tokens=min(wanted.max_tokens, room),
            temperature=wanted.temperature,
            top_p=wanted.top_p,
            top_k=wanted.top_k,
            stop=wanted.stop,
            stop_ids=wanted.stop_ids or self.renderer.stop_ids,
            seed=derive_seed(conversation.seed if wanted.seed is None else wanted.seed, "call", episode.calls),
        )
        episode.calls += 1
        with span("engine_call", prompt_tokens=len(prompt)) as traced:
            generation = await self.engine.generate(prompt, sampling, episode.session)
            traced.set_attribute("palestra.tokens", len(generation.tokens.ids))
        if generation.finish is Finish.LENGTH and room <= wanted.max_tokens:
            return Generation(generation.tokens, Finish.OVERFLOW)
        return generation


def _cut(text: str, stops: Sequence[str]) -> str:
    """``text`` up to and with the first stop string."""
    ends = [text.find(stop) + len(stop) for stop in stops if stop in text]
    return text[: min(ends)] if ends else text
