"""Token ids of an episode, with the sampled parts marked.

A ``Segment`` holds flat ids and one ``Span`` for each part that the model sampled. The mask, the turn and the weight version
of every token are derived from the spans, so they cannot disagree with the ids. A token takes four bytes, a sampled one
eight. An episode has one segment as long as each prompt extends the previous one; each prompt that extends no segment opens
another. Inside a segment the turns never decrease. The turns of two segments may alternate, as two agents do.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.foundation.encoding import Floats, Ints

__all__ = ["Segment", "Span"]


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A sampled part of a segment: ``ids[start:stop]``, with its turn and the version of the weights."""

    start: int
    stop: int
    turn: int
    version: int = 0


class Segment(msgspec.Struct, frozen=True):
    """A context as the engine saw it; spans mark the sampled tokens."""

    ids: Ints
    spans: tuple[Span, ...]
    logprobs: Floats
    """Log-probabilities of the sampled tokens only, in the order of ``ids``."""

    def __post_init__(self) -> None:
        end = 0
        for span in self.spans:
            if not end <= span.start <= span.stop <= len(self.ids):
                raise ValueError(f"span {span.start}:{span.stop} overlaps, is out of order or outside {len(self.ids)} ids")
            end = span.stop
        sampled = sum(span.stop - span.start for span in self.spans)
        if sampled != len(self.logprobs):
            raise ValueError(f"{sampled} sampled tokens but {len(self.logprobs)} log-probs")

    @property
    def mask(self) -> npt.NDArray[np.bool_]:
        """True on sampled tokens, false on all others."""
        mask = np.zeros(len(self.ids), dtype=np.bool_)
        for span in self.spans:
            mask[span.start : span.stop] = True
        return mask

    @property
    def turns(self) -> Ints:
        """The turn of each sampled token; -1 on the others."""
        return self._per_token([span.turn for span in self.spans])

    @property
    def versions(self) -> Ints:
        """The weight version that sampled each token; -1 on the others."""
        return self._per_token([span.version for span in self.spans])

    def _per_token(self, values: Sequence[int]) -> Ints:
        out = np.full(len(self.ids), -1, dtype=np.int32).view(Ints)
        for span, value in zip(self.spans, values, strict=True):
            out[span.start : span.stop] = value
        return out
