"""An engine without torch: the forward pass of a small Llama in NumPy, for the model that the wheel carries.

It computes in float64, so it differs from torch by torch's own rounding alone. A pass of one token through two layers of width
64 takes about a quarter of a millisecond. One call runs at a time, in the event loop: this is for models with at most a few
hundred thousand parameters. A session keeps its keys and values, so the next turn computes its new tokens only.

It reads the models that ``palestra.inference.models.build_tiny`` makes: as many key heads as query heads, no biases, and the
input embeddings as output layer.

Shapes: T new tokens, S tokens in the context, H heads, D numbers per head, V vocabulary entries.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from palestra.core import EngineSession, Generation, Sampling
from palestra.errors import Unsupported
from palestra.foundation.encoding import Ints, floats, ints
from palestra.foundation.seeding import derive, fresh_seed
from palestra.trajectory import Finish, Tokens

__all__ = ["Llama", "NumpyEngine"]

_Array = npt.NDArray[np.float64]
_LAYER_PARTS = {
    "before": "input_layernorm",
    "query": "self_attn.q_proj",
    "key": "self_attn.k_proj",
    "value": "self_attn.v_proj",
    "out": "self_attn.o_proj",
    "after": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


class _Layer(NamedTuple):
    """The weights of one layer. Matrices are transposed: an input row times a matrix is an output row."""

    before: _Array
    query: _Array
    key: _Array
    value: _Array
    out: _Array
    after: _Array
    gate: _Array
    up: _Array
    down: _Array


class _Context:
    """The ids of a context, and the keys and values of every layer."""

    def __init__(self, layers: int) -> None:
        self.ids: list[int] = []
        self.keys_HSD: list[_Array | None] = [None] * layers
        self.values_HSD: list[_Array | None] = [None] * layers

    def cut(self, length: int) -> None:
        """Forget everything behind ``length``."""
        self.ids = self.ids[:length]
        for kept in (self.keys_HSD, self.values_HSD):
            kept[:] = [None if rows is None else rows[:, :length] for rows in kept]


class Llama:
    """A small Llama.

    Args:
        weights: The tensors under the names that transformers gives them, such as ``model.embed_tokens.weight``.
        heads: The number of attention heads.
        base: The base of the rotary positions.
        epsilon: What the normalisation adds to the mean square.
        context_length: The most tokens in a context.

    """

    def __init__(
        self,
        weights: Mapping[str, npt.NDArray[Any]],
        *,
        heads: int,
        base: float = 10_000.0,
        epsilon: float = 1e-6,
        context_length: int = 2048,
    ) -> None:
        count = sum(name.endswith("input_layernorm.weight") for name in weights)
        self._layers = [_layer(weights, number) for number in range(count)]
        self._embeddings_VE = _float(weights["model.embed_tokens.weight"])
        self._norm = _float(weights["model.norm.weight"])
        self._heads = heads
        self._epsilon = epsilon
        self.context_length = context_length
        size = self._embeddings_VE.shape[1] // heads
        angles_SD = np.outer(np.arange(context_length), base ** (-np.arange(0, size, 2) / size))
        self._cos_SD, self._sin_SD = np.cos(angles_SD), np.sin(angles_SD)

    def new_context(self) -> _Context:
        """Return an empty context."""
        return _Context(len(self._layers))

    def logits(self, ids: Sequence[int], context: _Context | None = None) -> _Array:
        """Return the logits after each of ``ids``, which follow ``context``; the context then contains them."""
        context = context or self.new_context()
        begin, end = len(context.ids), len(context.ids) + len(ids)
        context.ids.extend(ids)
        rows_TE = self._embeddings_VE[np.asarray(ids)]
        mask_TS = np.where(np.arange(end) > np.arange(begin, end)[:, None], -np.inf, 0.0)
        for number, layer in enumerate(self._layers):
            rows_TE = rows_TE + self._attention(layer, number, self._normed(rows_TE, layer.before), mask_TS, context)
            inner = self._normed(rows_TE, layer.after)
            rows_TE = rows_TE + (_silu(inner @ layer.gate) * (inner @ layer.up)) @ layer.down
        logits_TV: _Array = self._normed(rows_TE, self._norm) @ self._embeddings_VE.T
        return logits_TV

    def _attention(self, layer: _Layer, number: int, rows_TE: _Array, mask_TS: _Array, context: _Context) -> _Array:
        begin, end = len(context.ids) - len(rows_TE), len(context.ids)
        query_HTD, key_HTD = (self._turned(self._split(rows_TE @ matrix), begin, end) for matrix in (layer.query, layer.key))
        key_HSD = _appended(context.keys_HSD, number, key_HTD)
        value_HSD = _appended(context.values_HSD, number, self._split(rows_TE @ layer.value))
        scores_HTS = query_HTD @ key_HSD.transpose(0, 2, 1) / np.sqrt(key_HSD.shape[-1]) + mask_TS
        weights_HTS = np.exp(scores_HTS - scores_HTS.max(axis=-1, keepdims=True))
        weights_HTS /= weights_HTS.sum(axis=-1, keepdims=True)
        seen_TE: _Array = (weights_HTS @ value_HSD).transpose(1, 0, 2).reshape(rows_TE.shape)
        return seen_TE @ layer.out

    def _split(self, rows_TE: _Array) -> _Array:
        return rows_TE.reshape(len(rows_TE), self._heads, -1).transpose(1, 0, 2)

    def _turned(self, rows_HTD: _Array, begin: int, end: int) -> _Array:
        """Turn each pair of numbers by its position: the first half of a head pairs with the second."""
        cos_TD, sin_TD = self._cos_SD[begin:end], self._sin_SD[begin:end]
        left, right = np.split(rows_HTD, 2, axis=-1)
        return np.concatenate([left * cos_TD - right * sin_TD, right * cos_TD + left * sin_TD], axis=-1)

    def _normed(self, rows_TE: _Array, weight: _Array) -> _Array:
        normed: _Array = rows_TE / np.sqrt((rows_TE * rows_TE).mean(axis=-1, keepdims=True) + self._epsilon) * weight
        return normed


class NumpyEngine:
    """Samples from a ``Llama`` in this process. It learns nothing: ``update_weights`` is refused.

    The same seed gives the same tokens as ``HFEngine``, except where two tokens are equally likely up to rounding.
    """

    def __init__(self, model: Llama) -> None:
        self._model = model
        self.context_length = model.context_length
        self._contexts: WeakKeyDictionary[EngineSession, _Context] = WeakKeyDictionary()
        self._awake = asyncio.Event()
        self._awake.set()

    async def generate(self, prompt: Ints, sampling: Sampling, session: EngineSession | None = None) -> Generation:
        """Sample a continuation of ``prompt``."""
        if sampling.stop:
            raise Unsupported("NumpyEngine knows no stop strings: use Sampling.stop_ids")
        await asyncio.sleep(0)  # so that other episodes have their turn
        await self._awake.wait()
        context = self._context(prompt, session)
        logits_V = self._model.logits(prompt[len(context.ids) :].tolist(), context)[-1]
        random = derive(fresh_seed() if sampling.seed is None else sampling.seed, "tokens")
        sampled: list[int] = []
        logprobs: list[float] = []
        while True:
            token, logprob = _draw(logits_V, sampling, float(random.random()) if sampling.temperature else 0.0)
            sampled.append(token)
            logprobs.append(logprob)
            if token in sampling.stop_ids or len(sampled) == sampling.max_tokens:
                break
            logits_V = self._model.logits([token], context)[-1]
        finish = Finish.STOP if sampled[-1] in sampling.stop_ids else Finish.LENGTH
        return Generation(Tokens(prompt, ints(sampled), floats(logprobs)), finish)

    def _context(self, prompt: Ints, session: EngineSession | None) -> _Context:
        """The context of ``session``, cut where it and ``prompt`` part; the last token of the prompt is always computed."""
        if session is None:
            return self._model.new_context()
        context = self._contexts.setdefault(session, self._model.new_context())
        cached = ints(context.ids)[: len(prompt) - 1]
        parted = np.flatnonzero(cached != prompt[: len(cached)])
        context.cut(int(parted[0]) if len(parted) else len(cached))
        return context

    async def update_weights(self, source: Any, version: int) -> None:
        """Refused: this engine is for a model that is not trained any more."""
        raise Unsupported("NumpyEngine cannot load new weights: train with HFEngine, or make another NumpyEngine")

    async def pause(self) -> None:
        self._awake.clear()

    async def resume(self) -> None:
        self._awake.set()

    async def close(self) -> None:
        """Forget all contexts."""
        self._contexts.clear()


def _layer(weights: Mapping[str, npt.NDArray[Any]], number: int) -> _Layer:
    named = {part: weights[f"model.layers.{number}.{name}.weight"] for part, name in _LAYER_PARTS.items()}
    return _Layer(**{part: _float(matrix.T) for part, matrix in named.items()})


def _float(weights: npt.NDArray[Any]) -> _Array:
    return np.ascontiguousarray(weights, dtype=np.float64)


def _appended(kept: list[_Array | None], number: int, rows_HTD: _Array) -> _Array:
    before = kept[number]
    joined = rows_HTD if before is None else np.concatenate([before, rows_HTD], axis=1)
    kept[number] = joined
    return joined


def _silu(values: _Array) -> _Array:
    with np.errstate(over="ignore"):  # exp of a large number is inf, and the quotient 0
        quotient: _Array = values / (1.0 + np.exp(-values))
    return quotient


def _draw(logits_V: _Array, sampling: Sampling, uniform: float) -> tuple[int, float]:
    """Draw a token by the rules of ``palestra.inference.engines.drawing``, for one request."""
    logits_V = _cut(logits_V / (sampling.temperature or 1.0), sampling)
    shifted_V = logits_V - logits_V.max()
    logprobs_V = shifted_V - np.log(np.exp(shifted_V).sum())
    if sampling.temperature:
        cumulative_V = np.exp(logprobs_V).cumsum()
        token = min(int(np.searchsorted(cumulative_V, uniform * cumulative_V[-1], side="right")), len(logits_V) - 1)
    else:
        token = int(logprobs_V.argmax())
    return token, float(logprobs_V[token])


def _cut(logits_V: _Array, sampling: Sampling) -> _Array:
    """``logits_V`` without the tokens that ``top_k`` and ``top_p`` exclude."""
    if not sampling.top_k and sampling.top_p >= 1:
        return logits_V
    order_V = np.argsort(-logits_V, kind="stable")[: sampling.top_k or None]
    odds_V = np.exp(logits_V[order_V] - logits_V[order_V[0]])
    before_V = odds_V.cumsum() / odds_V.sum() - odds_V / odds_V.sum()
    kept_V = order_V[before_V < sampling.top_p]
    cut_V = np.full_like(logits_V, -np.inf)
    cut_V[kept_V] = logits_V[kept_V]
    return cut_V
