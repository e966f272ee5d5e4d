"""transformers in this process: sampling for tests, laptops and small models, on a CPU or one GPU.

Requests join and leave the running batch between two tokens, so a request never waits for the slowest of a batch. All passes
run on one dedicated thread; the event loop never computes. Contexts keep their keys and values from turn to turn (see
``arena``) as long as their ``EngineSession`` lives and a row is free. A new context copies the prefix that it shares with any
other, so a prefix common to all episodes is computed once.

Rounding depends on which requests are computed together. So before each call of the thread, the event loop runs until the
episodes have asked for all that they can ask for now. What joins the batch then depends on the requests, and not on how long an
environment computes: if environments and policies neither leave this event loop nor wait for a clock, and weights change
between episodes only, a run is the same bit for bit every time. The price is that environments do not step while the model
computes.

New weights take effect between two tokens. Everything cached under the old weights is computed again, so every log-prob belongs
to the version recorded with it.
"""

import asyncio
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import InfrastructureError, UsageError
from palestra.foundation.encoding import Ints, floats, ints
from palestra.foundation.seeding import derive, fresh_seed
from palestra.inference.engines.arena import Arena, Row, common_prefix
from palestra.inference.engines.drawing import draw
from palestra.trajectory import Finish, Tokens

__all__ = ["HFEngine"]

_WORTH_COPYING = 16
"""Length of a common prefix from which copying another row's keys is faster than computing them."""
_STEPS_A_CALL = 32
"""Decoding steps between two returns to the event loop, as long as no request waits."""
_QUIET_ROUNDS = 12
"""Rounds of the event loop without a new request, after which no episode is about to ask: at most 7 were seen between two."""
_MOST_ROUNDS = 10_000
"""Rounds after which the engine computes although requests still arrive, so that no caller can keep it from computing."""
_PADDED_AT_MOST = 1.5
"""Requests share a prefill pass as long as padding enlarges it by at most this factor."""
_LONGEST_PASS = 2048
"""New tokens of one context per pass; a longer prompt is computed in pieces, because its mask grows with the square."""


class _Request:
    """A request in progress."""

    def __init__(
        self, prompt: Ints, sampling: Sampling, session: EngineSession | None, answer: asyncio.Future[Generation]
    ) -> None:
        self.prompt = prompt
        self.sampling = sampling
        self.session = session
        self.answer = answer
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.updates: list[tuple[int, int]] = []
        """Where versions changed; the first entry is the version at the start."""
        self.finish: Finish | None = None
        self._random = derive(fresh_seed() if sampling.seed is None else sampling.seed, "tokens")

    @property
    def context(self) -> Ints:
        """All ids so far, prompt and sampled."""
        return ints(np.concatenate([self.prompt, ints(self.ids)])) if self.ids else self.prompt

    def uniform(self) -> float:
        """Return the random number that decides the next token."""
        return float(self._random.random()) if self.sampling.temperature else 0.0

    def take(self, token: int, logprob: float, version: int) -> None:
        """Append the token that was drawn."""
        if not self.updates or self.updates[-1][1] != version:
            self.updates.append((len(self.ids), version))
        self.ids.append(token)
        self.logprobs.append(logprob)

    def generation(self) -> Generation:
        """Return the finished answer."""
        assert self.finish is not None
        (_, version), *updates = self.updates
        return Generation(Tokens(self.prompt, ints(self.ids), floats(self.logprobs), version, tuple(updates)), self.finish)


class _Entry(NamedTuple):
    """A request that joins the batch."""

    request: _Request
    row: Row
    new: list[int]
    """The part of its context that is not in the row yet."""


class HFEngine:
    """Sample from a Hugging Face causal language model in this process."""

    def __init__(
        self, model: Any, *, decode: Callable[[list[int]], str] | None = None, batch: int = 32, rows: int = 64
    ) -> None:
        """Serve ``model``: ``batch`` requests at once, ``rows`` contexts remembered; ``decode`` is for stop strings."""
        _refuse_sliding_windows(model.config)
        self.model = model.eval()
        self.context_length: int = model.config.max_position_embeddings
        self.version = 0
        self._decode = decode
        self._batch = batch
        self._arena = Arena(max(rows, batch))
        self._rows: weakref.WeakKeyDictionary[EngineSession, Row] = weakref.WeakKeyDictionary()
        self._waiting: deque[_Request] = deque()
        self._active: list[_Request] = []
        """The request of each active row."""
        self._entering: list[_Entry] = []
        """Requests that have a row but are not active yet."""
        self._paused = False
        self._pump: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hf-engine")
        self._passes = 0

    @classmethod
    def load(cls, name: str | Path, *, dtype: str = "float32", device: str = "cpu", **options: Any) -> "HFEngine":
        """Load the engine of a model folder or hub name."""
        import transformers

        model: Any = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype))
        words: Any = transformers.AutoTokenizer.from_pretrained(name)
        return cls(model.to(device), decode=words.decode, **options)

    # ------------------------------------------------------------------------------------------------------- the protocol

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        if not len(prompt) or len(prompt) + sampling.max_tokens > self.context_length:
            raise UsageError(
                f"{len(prompt)} prompt ids (at least 1) and {sampling.max_tokens} new ones do not fit into a context of "
                f"{self.context_length}: shorten the prompt, or lower max_tokens"
            )
        if sampling.stop and self._decode is None:
            raise UsageError("stop strings need a tokenizer: HFEngine(model, decode=tokenizer.decode)")
        request = _Request(prompt, sampling, session, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._start()
        return await request.answer

    async def update_weights(self, source: Any, version: int) -> None:
        """Copy ``source`` into the model in place: a state dict, an object with such ``items()``, or a model folder."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._load, source, version)

    async def pause(self) -> None:
        self._paused = True
        # One thread, first in, first out: when this returns, no pass is running.
        await asyncio.get_running_loop().run_in_executor(self._thread, lambda: None)

    async def resume(self) -> None:
        self._paused = False
        self._start()

    async def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    # ----------------------------------------------------------------------------------------------------- on the event loop

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        if not self._paused and (self._pump is None or self._pump.done() or self._pump.get_loop() is not loop):
            self._pump = loop.create_task(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._settle()
            if self._paused or not (self._waiting or self._active):
                return
            try:
                finished = await loop.run_in_executor(self._thread, self._work)
            except Exception as error:  # noqa: BLE001 - torch may raise anything, and no request may wait forever
                self._fail(error)
                return
            for request in finished:
                if not request.answer.done():
                    request.answer.set_result(request.generation())

    async def _settle(self) -> None:
        """Wait until the episodes have asked for all that they can ask for now."""
        quiet = 0
        for _ in range(_MOST_ROUNDS):
            before = len(self._waiting)
            await asyncio.sleep(0)
            quiet = quiet + 1 if len(self._waiting) == before else 0
            if quiet == _QUIET_ROUNDS:
                return

    def _fail(self, error: Exception) -> None:
        for request in (*self._active, *(entry.request for entry in self._entering), *self._waiting):
            if not request.answer.done():
                request.answer.set_exception(InfrastructureError(f"the hf engine failed: {error!r}"))
        for requests in (self._active, self._entering, self._waiting):
            requests.clear()
        for row in self._arena.rows:
            row.busy = False
        self._arena.forget()

    # ----------------------------------------------------------------------------------------------------- on the thread

    def _work(self) -> list[_Request]:
        """Admit waiting requests, then decode until a request finishes, a new one waits, or enough steps have run."""
        with torch.no_grad():
            return self._decode_some()

    def _decode_some(self) -> list[_Request]:
        self._release([at for at, request in enumerate(self._active) if request.answer.done()])
        finished = self._admit()
        for _ in range(_STEPS_A_CALL):
            if finished or not self._active or self._paused:
                break
            finished = self._forward(0, [[request.ids[-1]] for request in self._active])
            if self._waiting and len(self._active) < self._batch:
                break
        return finished

    def _admit(self) -> list[_Request]:
        while self._waiting and len(self._active) + len(self._entering) < self._batch:
            request = self._waiting.popleft()
            if not request.answer.done():
                self._entering.append(self._seat(request))
        self._entering = self._share(self._entering)
        finished: list[_Request] = []
        for group in _similar(self._entering):
            first = len(self._active)
            for entry in group:
                self._arena.swap(entry.row.index, len(self._active))
                self._active.append(entry.request)
            finished += self._forward(first, [self._shortened(entry) for entry in group])
        self._entering.clear()
        return finished

    def _seat(self, request: _Request) -> _Entry:
        """Return a row for ``request``, and the ids that it still has to compute."""
        context = request.context
        row = None if request.session is None else self._rows.get(request.session)
        if row is None or row.busy:
            row = self._free_row()
            row.cached = 0
        cached = common_prefix(row, context)
        # Searching every row costs about as much as computing a few tokens.
        if cached < len(context) // 2 and len(context) - cached > _WORTH_COPYING:
            shared, best = max(((common_prefix(other, context), other) for other in self._arena.rows), key=lambda pair: pair[0])
            if shared >= cached + _WORTH_COPYING:
                cached = shared
                self._arena.copy(best, row, cached)
        row.busy, row.cached = True, min(cached, len(context) - 1)  # the last id is computed for its logits
        row.ids = array("i", context.tobytes())
        if request.session is not None:
            self._rows[request.session] = row
            row.owner = weakref.ref(request.session)
        return _Entry(request, row, row.ids[row.cached :].tolist())

    def _share(self, entering: list[_Entry]) -> list[_Entry]:
        """Compute the common prefix of all new requests once; after new weights every request counts as new."""
        fresh = [entry for entry in entering if not entry.row.cached]
        common = _common([entry.new for entry in fresh])
        if len(fresh) < 2 or common < _WORTH_COPYING:
            return entering
        first = fresh[0].row
        for start in range(0, common, _LONGEST_PASS):
            self._compute(first.index, [first.ids[start : min(start + _LONGEST_PASS, common)].tolist()])
        for entry in fresh[1:]:
            context = entry.row.ids
            self._arena.copy(first, entry.row, common)
            entry.row.ids = context
        return [entry._replace(new=entry.row.ids[entry.row.cached :].tolist()) for entry in entering]

    def _shortened(self, entry: _Entry) -> list[int]:
        """Compute a long prompt up to its last piece, and return that piece."""
        new = entry.new
        while len(new) > _LONGEST_PASS:
            self._compute(entry.row.index, [new[:_LONGEST_PASS]])
            new = new[_LONGEST_PASS:]
        return new

    def _free_row(self) -> Row:
        """Return an unused row: preferably one without a living session, else the least recently used."""
        idle = [row for row in self._arena.rows if not row.busy]
        chosen = min(idle, key=lambda row: (row.owner() is not None, row.used))
        session = chosen.owner()
        if session is not None and self._rows.get(session) is chosen:
            del self._rows[session]
        chosen.owner = lambda: None
        return chosen

    def _forward(self, first: int, tokens: list[list[int]]) -> list[_Request]:
        """Run one pass that appends ``tokens`` to the rows from ``first`` on, and draw one token for each."""
        requests = self._active[first : first + len(tokens)]
        logits = self._compute(first, tokens)
        drawn = draw(logits, [request.sampling for request in requests], [request.uniform() for request in requests])
        ended: list[int] = []
        for at, (request, token, logprob) in enumerate(zip(requests, *drawn, strict=True), start=first):
            request.take(token, logprob, self.version)
            row = self._arena.rows[at]
            row.ids.append(token)
            row.used = self._passes
            request.finish = self._finish(request)
            if request.finish is not None:
                ended.append(at)
        finished = [self._active[at] for at in ended]
        self._release(ended)
        return finished

    def _compute(self, first: int, tokens: list[list[int]]) -> torch.Tensor:
        """Store keys and values of ``tokens``, and return the logits after them."""
        ids, positions, mask = self._arena.begin(first, tokens, self.model.device)
        output = self.model(
            input_ids=ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self._arena,
            use_cache=True,
            logits_to_keep=1,
        )
        self._arena.advance(first, tokens)
        self._passes += 1
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def _finish(self, request: _Request) -> Finish | None:
        sampling = request.sampling
        if request.ids[-1] in sampling.stop_ids:
            return Finish.STOP
        if sampling.stop and self._decode is not None:
            recent = self._decode(request.ids[-max(map(len, sampling.stop)) - 8 :])
            if any(stop in recent for stop in sampling.stop):
                return Finish.STOP
        return Finish.LENGTH if len(request.ids) >= sampling.max_tokens else None

    def _release(self, places: Any) -> None:
        """Remove the requests at ``places`` from the batch. Their rows stay unchanged, behind the active ones."""
        for at in sorted(places, reverse=True):
            last = len(self._active) - 1
            self._arena.rows[at].busy = False
            self._arena.swap(at, last)
            self._active[at] = self._active[last]
            self._active.pop()

    def _load(self, source: Any, version: int) -> None:
        state = source if hasattr(source, "items") else _state_of(source)
        parameters = self.model.state_dict()
        with torch.no_grad():
            for name, tensor in state.items():
                if name not in parameters:
                    raise UsageError(f"the new weights contain a parameter that this model does not have: {name}")
                parameters[name].copy_(tensor)
        self.version = version
        # Running requests compute their context again under the new weights, before any waiting one starts.
        self._waiting.extendleft(reversed(self._active))
        self._release(range(len(self._active)))
        self._arena.forget()


def _common(contexts: list[list[int]]) -> int:
    """Return how many leading ids all ``contexts`` share, leaving at least one id of each."""
    if not contexts:
        return 0
    low, high = min(contexts), max(contexts)  # every list between these two in order shares their common prefix
    most = min(len(context) for context in contexts) - 1
    return next((at for at in range(most) if low[at] != high[at]), most)


def _similar(entering: list[_Entry]) -> list[list[_Entry]]:
    """Group entries with about equally many new tokens, to avoid padding. Rows keep their order, so that few of them move."""
    groups: list[list[_Entry]] = []
    total = 0
    for entry in sorted(entering, key=lambda entry: (len(entry.new), entry.row.index)):
        total += len(entry.new)
        if groups and (len(groups[-1]) + 1) * len(entry.new) <= _PADDED_AT_MOST * total:
            groups[-1].append(entry)
        else:
            groups.append([entry])
            total = len(entry.new)
    return groups


def _state_of(folder: Any) -> Mapping[str, torch.Tensor]:
    import transformers

    state: Mapping[str, torch.Tensor] = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
    return state


def _refuse_sliding_windows(config: Any) -> None:
    kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
    if kinds != {"full_attention"}:
        raise UsageError(
            f"the hf engine supports only models with full attention, this one has {sorted(kinds)}: use vllm or sglang"
        )
