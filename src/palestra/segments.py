"""From an engine's output, turn by turn, to the segments of a trajectory.

A prompt that begins with everything in the open segment (its prompts and the tokens sampled after them) extends it: only the
difference is appended. Any other prompt opens a new segment. Nothing is decoded or tokenized here, and a sampled token enters
exactly once, so training sees exactly the sampled tokens.
"""

import msgspec
import numpy as np

from palestra.encoding import Ints, floats, ints
from palestra.trajectory import Completion, Segment, Span, Tokens

__all__ = ["SegmentRecorder"]


class SegmentRecorder:
    """Collects the tokens of one player's episode. Use one recorder per conversation."""

    def __init__(self) -> None:
        self._closed: list[Segment] = []
        self._open = _Growing()

    def add(self, tokens: Tokens, turn: int) -> None:
        """Record a completion of ``turn``. A completion without sampled tokens is skipped."""
        if not len(tokens.ids):
            return
        if not self._open.extended_by(tokens.prompt):
            self._closed.append(self._open.segment())
            self._open = _Growing()
        self._open.append(tokens, turn)

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
        """Return the segments recorded so far, in order. Recording may continue afterwards."""
        return (*self._closed, self._open.segment()) if self._open.length else tuple(self._closed)


class _Growing:
    """The open segment: a buffer that doubles, so that an episode of n tokens copies O(n) of them."""

    def __init__(self) -> None:
        self.length = 0
        self._ids = np.empty(256, dtype=np.int32)
        self._spans: list[Span] = []
        self._logprobs: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []

    def extended_by(self, prompt: Ints) -> bool:
        n = self.length
        return len(prompt) >= n and np.array_equal(prompt[:n], self._ids[:n])

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
        logprobs = np.concatenate(self._logprobs) if self._logprobs else ()
        return Segment(ints(self._ids[: self.length]), tuple(self._spans), floats(logprobs))
