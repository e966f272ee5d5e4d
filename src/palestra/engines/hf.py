"""transformers in this process: sampling for tests, laptops and small models, on a CPU or one GPU.

Requests join and leave the running batch between two tokens, so nobody waits for the slowest of a batch. All passes run on one
thread of their own; the event loop never computes. Contexts keep their keys and values from turn to turn (see ``arena``), as
long as the ``Session`` lives and there is a row to spare; a new context copies what it shares with any other, so a prefix
common to all episodes is computed once.

New weights take effect between two tokens. What was cached under the old ones is computed again, so every log-prob is that of
the version it is stamped with.
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

from palestra.core import Generation, Sampling, Session
from palestra.encoding import Ints, floats, ints
from palestra.engines.arena import Arena, Row, common_prefix
from palestra.engines.drawing import draw
from palestra.errors import InfrastructureError, UsageError
from palestra.seeding import derive, fresh_seed
from palestra.trajectory import Finish, Tokens

__all__ = ["HFEngine"]

_WORTH_COPYING = 16
"""Tokens of common prefix from which on copying another row's keys beats computing them."""
_STEPS_A_CALL = 32
"""Decoding steps between two looks at the event loop, as long as nobody waits."""
_PADDED_AT_MOST = 1.5
"""Requests share a prefill pass while padding makes it no more than this much larger."""
_LONGEST_PASS = 2048
"""New tokens of one context in one pass; a longer prompt is computed in pieces, as its mask grows with the square."""


class _Request:
    """A request under way."""

    def __init__(self, prompt: Ints, sampling: Sampling, session: Session | None, answer: asyncio.Future[Generation]) -> None:
        self.prompt = prompt
        self.sampling = sampling
        self.session = session
        self.answer = answer
        self.ids: list[int] = []
        self.logprobs: list[float] = []
        self.updates: list[tuple[int, int]] = []
        """Where versions changed; the first entry is the version sampling began with."""
        self.finish: Finish | None = None
        self._random = derive(fresh_seed() if sampling.seed is None else sampling.seed, "tokens")

    @property
    def context(self) -> Ints:
        """Everything so far."""
        return ints(np.concatenate([self.prompt, ints(self.ids)])) if self.ids else self.prompt

    def uniform(self) -> float:
        """The number that decides the next token."""
        return float(self._random.random()) if self.sampling.temperature else 0.0

    def take(self, token: int, logprob: float, version: int) -> None:
        """The next token was drawn."""
        if not self.updates or self.updates[-1][1] != version:
            self.updates.append((len(self.ids), version))
        self.ids.append(token)
        self.logprobs.append(logprob)

    def generation(self) -> Generation:
        """The finished answer."""
        assert self.finish is not None
        (_, version), *updates = self.updates
        return Generation(Tokens(self.prompt, ints(self.ids), floats(self.logprobs), version, tuple(updates)), self.finish)


class _Entry(NamedTuple):
    """A request about to join the batch."""

    request: _Request
    row: Row
    new: list[int]
    """What of its context is not in the row yet."""


class HFEngine:
    """Samples from a Hugging Face causal language model in this process."""

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
        self._rows: weakref.WeakKeyDictionary[Session, Row] = weakref.WeakKeyDictionary()
        self._waiting: deque[_Request] = deque()
        self._active: list[_Request] = []
        """The request of each of the arena's first rows."""
        self._entering: list[_Entry] = []
        """Requests that have a row and are not active yet."""
        self._paused = False
        self._pump: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="hf-engine")
        self._passes = 0

    @classmethod
    def load(cls, name: str | Path, *, dtype: str = "float32", device: str = "cpu", **options: Any) -> "HFEngine":
        """The engine of a model folder or hub name."""
        import transformers

        model = transformers.AutoModelForCausalLM.from_pretrained(name, dtype=getattr(torch, dtype)).to(device)
        words = transformers.AutoTokenizer.from_pretrained(name)
        return cls(model, decode=words.decode, **options)

    # ------------------------------------------------------------------------------------------------------- the protocol

    async def generate(self, prompt: Ints, sampling: Sampling, session: Session | None = None) -> Generation:
        if not len(prompt) or len(prompt) + sampling.max_tokens > self.context_length:
            raise UsageError(
                f"{len(prompt)} prompt ids (at least 1) and {sampling.max_tokens} new ones do not fit {self.context_length}"
            )
        if sampling.stop and self._decode is None:
            raise UsageError("stop strings need a tokenizer: HFEngine(model, decode=tokenizer.decode)")
        request = _Request(prompt, sampling, session, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._start()
        return await request.answer

    async def update_weights(self, source: Any, version: int) -> None:
        """Copy ``source`` (a state dict, or a folder with a model) into the model in place."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._load, source, version)

    async def pause(self) -> None:
        self._paused = True
        # One thread, first come first served: when this comes back, no pass is under way.
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
        while (self._waiting or self._active) and not self._paused:
            try:
                finished = await loop.run_in_executor(self._thread, self._work)
            except Exception as error:  # whatever torch raises: every request is told, none is left waiting
                self._fail(error)
                return
            for request in finished:
                if not request.answer.done():
                    request.answer.set_result(request.generation())

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
        """Let in who waits, then decode until somebody is finished, somebody waits, or it has been long enough."""
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
        """A row for ``request``, and the ids it still has to compute."""
        context = request.context
        row = None if request.session is None else self._rows.get(request.session)
        if row is None or row.busy:
            row = self._free_row()
            row.cached = 0
        known = common_prefix(row, context)
        # Looking at every row costs about as much as computing a few tokens.
        if known < len(context) // 2 and len(context) - known > _WORTH_COPYING:
            shared, best = max(((common_prefix(other, context), other) for other in self._arena.rows), key=lambda pair: pair[0])
            if shared >= known + _WORTH_COPYING:
                known = shared
                self._arena.copy(best, row, known)
        row.busy, row.cached = True, min(known, len(context) - 1)  # the last one is computed for its logits
        row.ids = array("i", context.tobytes())
        if request.session is not None:
            self._rows[request.session] = row
            row.owner = weakref.ref(request.session)
        return _Entry(request, row, row.ids[row.cached :].tolist())

    def _share(self, entering: list[_Entry]) -> list[_Entry]:
        """Compute once what all newcomers begin with; after new weights every context is a newcomer."""
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
        """What is left of a long prompt after all but its last piece has been computed."""
        new = entry.new
        while len(new) > _LONGEST_PASS:
            self._compute(entry.row.index, [new[:_LONGEST_PASS]])
            new = new[_LONGEST_PASS:]
        return new

    def _free_row(self) -> Row:
        """A row that nobody uses: best one without a living session, else the one used longest ago."""
        idle = [row for row in self._arena.rows if not row.busy]
        chosen = min(idle, key=lambda row: (row.owner() is not None, row.used))
        session = chosen.owner()
        if session is not None and self._rows.get(session) is chosen:
            del self._rows[session]
        chosen.owner = lambda: None
        return chosen

    def _forward(self, first: int, tokens: list[list[int]]) -> list[_Request]:
        """One pass that appends ``tokens`` to the rows from ``first`` on, and draws one token for each."""
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
        """The logits after ``tokens``, whose keys and values are then in place."""
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
        return output.logits[:, -1]

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
        """Take the requests at ``places`` out of the batch. Their rows stay as they are, behind the active ones."""
        for at in sorted(places, reverse=True):
            last = len(self._active) - 1
            self._arena.rows[at].busy = False
            self._arena.swap(at, last)
            self._active[at] = self._active[last]
            self._active.pop()

    def _load(self, source: Any, version: int) -> None:
        state = source if isinstance(source, Mapping) else _state_of(source)
        own = self.model.state_dict()
        if unknown := state.keys() - own.keys():
            raise UsageError(f"the new weights name what this model does not have: {sorted(unknown)[:3]}")
        with torch.no_grad():
            for name, tensor in state.items():
                own[name].copy_(tensor)
        self.version = version
        # Whoever is in mid-completion computes its context again under the new weights, before anybody else.
        self._waiting.extendleft(reversed(self._active))
        self._release(range(len(self._active)))
        self._arena.forget()


def _common(contexts: list[list[int]]) -> int:
    """How many leading ids all of ``contexts`` have in common, one id of each being left over."""
    if not contexts:
        return 0
    low, high = min(contexts), max(contexts)  # in the order of lists, whatever lies between begins like both
    most = min(len(context) for context in contexts) - 1
    return next((at for at in range(most) if low[at] != high[at]), most)


def _similar(entering: list[_Entry]) -> list[list[_Entry]]:
    """Groups of about equally many new tokens, so that a pass is not mostly padding; rows in their order, so that few move."""
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
            f"the hf engine serves models with full attention only, this one has {sorted(kinds)}: use vllm or sglang"
        )
