"""From an engine's output, turn by turn, to the segments of a trajectory.

A prompt that begins with everything in a segment (its prompts and the tokens sampled after them) extends that segment: only
the difference is appended. Any other prompt opens a new segment. Every segment stays open, because the calls of several agents
may alternate: the calls A, B, A of two conversations are two segments. Nothing is decoded or tokenized here, and a sampled
token enters exactly once, so training sees exactly the sampled tokens.
"""

import msgspec
import numpy as np

from palestra.foundation.encoding import Ints, floats, ints
from palestra.trajectory import Completion, Segment, Span, Tokens

__all__ = ["SegmentRecorder"]


class SegmentRecorder:
    """Collects the tokens of one player's episode. Use one recorder per conversation."""

    def __init__(self) -> None:
        self._segments: list[_Growing] = []

    def add(self, tokens: Tokens, turn: int) -> None:
        """Record a completion of ``turn``. A completion without sampled tokens is skipped."""
        if not len(tokens.ids):
            return
        extended = [segment for segment in self._segments if segment.extended_by(tokens.prompt)]
        # The longest saves most. Of two equal ones the later continues: its reply was sampled again.
        segment = max(reversed(extended), key=lambda segment: segment.length, default=None)
        if segment is None:
            segment = _Growing()
            self._segments.append(segment)
        segment.append(tokens, turn)

    def take(self, completion: Completion, turn: int) -> Completion:
        """Record everything that ``completion`` sampled, and return the completion without its tokens."""
        if completion.tokens is None and not completion.notes:
            return completion
        for note in completion.notes:
            self.add(note, turn)
        if completion.tokens is not None:
            self.add(completion.tokens, turn)
        return msgspec.structs.replace(completion, tokens=None, notes=())

    def segments(self) -> tuple[Segment, ...]:
        """Return the segments recorded so far, in the order of their first tokens. Recording may continue afterwards."""
        return tuple(segment.segment() for segment in self._segments)


class _Growing:
    """A segment that may still grow: a buffer that doubles, so that an episode of n tokens copies O(n) of them."""

    def __init__(self) -> None:
        self.length = 0
        self._ids = np.empty(256, dtype=np.int32)
        self._spans: list[Span] = []
        self._logprobs: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []

    def extended_by(self, prompt: Ints) -> bool:
        n = self.length
        # The last token tells most contexts apart, so that many segments cost little.
        return len(prompt) >= n and prompt[n - 1] == self._ids[n - 1] and np.array_equal(prompt[:n], self._ids[:n])

    def append(self, tokens: Tokens, turn: int) -> None:
        delta = tokens.prompt[self.length :]
        begin = self.length + len(delta)
        self._grow(begin + len(tokens.ids))
        self._ids[self.length : begin] = delta
        self._ids[begin : begin + len(tokens.ids)] = tokens.ids
        self.length = begin + len(tokens.ids)
        self._logprobs.append(tokens.logprobs)
        self._spans.extend(Span(begin + start, begin + stop, turn, version) for start, stop, version in tokens.runs)

    def _grow(self, size: int) -> None:
        if size > len(self._ids):
            grown = np.empty(max(size, 2 * len(self._ids)), dtype=np.int32)
            grown[: self.length] = self._ids[: self.length]
            self._ids = grown

    def segment(self) -> Segment:
        return Segment(ints(self._ids[: self.length]), tuple(self._spans), floats(np.concatenate(self._logprobs)))
