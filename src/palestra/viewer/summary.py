"""The summary of an episode that the lists of the viewer show, read from its JSON line without decoding the rest.

A run of 10,000 episodes takes half a gigabyte, most of it token ids. The structs below name only the fields that a list needs.
The parser skips everything else, and it keeps token ids as raw bytes, of which only the length is used. The summaries are
stored as columns, and repeated strings once, so that 100,000 episodes stay small in memory and in the response to the page.
"""

from typing import Any

import msgspec

from palestra.errors import Boundary, SchemaError
from palestra.foundation.encoding import encode_json
from palestra.trajectory import Span, StopReason, Usage, verdicts

__all__ = ["Columns", "NameTable", "Summariser", "summarise"]

# An id is four bytes, and base64 writes three bytes as four letters.
_LETTERS_PER_ID = 16 / 3
_LONGEST_CAUSE = 200


class NameTable(msgspec.Struct):
    """A column of repeated strings: each distinct string once, and its number for every row."""

    values: list[str] = []
    codes: list[int] = []

    def add(self, name: str, numbers: dict[str, int]) -> None:
        """Append one row. ``numbers`` is the inverse of ``values``, kept by the caller."""
        number = numbers.setdefault(name, len(self.values))
        if number == len(self.values):
            self.values.append(name)
        self.codes.append(number)


class Columns(msgspec.Struct):
    """One entry per episode in every list."""

    env: NameTable = msgspec.field(default_factory=NameTable)
    task: NameTable = msgspec.field(default_factory=NameTable)
    """The name of the task inside its environment, such as ``seed 3``."""
    policy: NameTable = msgspec.field(default_factory=NameTable)
    player: NameTable = msgspec.field(default_factory=NameTable)
    stop: NameTable = msgspec.field(default_factory=NameTable)
    boundary: NameTable = msgspec.field(default_factory=NameTable)
    """The boundary that a failure is attributed to; empty for episodes that did not fail."""
    cause: NameTable = msgspec.field(default_factory=NameTable)
    """The kind and the first line of the message of that failure."""
    reward: list[float | None] = []
    success: list[bool | None] = []
    turns: list[int] = []
    sampled: list[int] = []
    """Tokens that the policy sampled."""
    context: list[int] = []
    """Tokens recorded in all segments, including the sampled ones."""
    dollars: list[float] = []
    seconds: list[float] = []
    group: list[int] = []
    member: list[int] = []
    attempt: list[int] = []
    version: list[int] = []
    """The newest version of the weights that sampled one of its tokens; -1 if none is recorded."""
    step: list[int] = []
    """The training step that used the episode; -1 outside training."""

    def __len__(self) -> int:
        return len(self.reward)

    def judged(self) -> list[bool | None]:
        """Return ``success`` with ``False`` for episodes that were cut before their environment judged them."""
        return verdicts(self.env.codes, [self.stop.values[code] for code in self.stop.codes], self.success)


class _Task(msgspec.Struct):
    env: str
    seed: int = 0
    index: int | None = None
    split: str = "train"
    params: dict[str, Any] = {}

    @property
    def label(self) -> str:
        parts = [f"seed {self.seed}"]
        if self.index is not None:
            parts.append(f"row {self.index}")
        if self.split != "train":
            parts.append(self.split)
        if self.params:
            parts.append(encode_json(self.params).decode())
        return " · ".join(parts)


class _Info(msgspec.Struct, frozen=True):
    success: Any = None


class _ResetInfo(msgspec.Struct, frozen=True):
    step: Any = None


class _Completion(msgspec.Struct):
    usage: Usage | None = None


class _Turn(msgspec.Struct):
    completion: _Completion
    reward: float = 0.0
    info: _Info = _Info()


class _Segment(msgspec.Struct):
    ids: msgspec.Raw
    spans: list[Span]


class _Failure(msgspec.Struct):
    boundary: Boundary
    kind: str = ""
    message: str = ""
    attempt: int = 0

    @property
    def cause(self) -> str:
        line = self.message.strip().partition("\n")[0]
        return f"{self.kind}: {line}"[:_LONGEST_CAUSE]


class _SummarizedEpisode(msgspec.Struct):
    task: _Task
    stop: StopReason
    turns: list[_Turn] = []
    segments: list[_Segment] = []
    info: _ResetInfo = _ResetInfo()
    failures: list[_Failure] = []
    player: str = ""
    policy: str = ""
    group: int = 0
    member: int = 0
    attempt: int = 0
    seconds: float = 0.0


_decoder = msgspec.json.Decoder(_SummarizedEpisode)


def _ending_failure(episode: _SummarizedEpisode) -> _Failure | None:
    """Return the first failure of the last attempt: earlier attempts were retried, later failures follow from the first."""
    if not episode.stop.failed:
        return None
    return next((failure for failure in episode.failures if failure.attempt == episode.attempt), None)


class Summariser:
    """Adds episodes to columns."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        names = (
            columns.env,
            columns.task,
            columns.policy,
            columns.player,
            columns.stop,
            columns.boundary,
            columns.cause,
        )
        self._numbers = [(column, {name: number for number, name in enumerate(column.values)}) for column in names]

    def add(self, line: bytes | memoryview) -> None:
        """Append the episode in ``line``; raise ``SchemaError`` if it is not a trajectory."""
        try:
            episode = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SchemaError(f"not a Trajectory: {error}") from None
        failure = _ending_failure(episode)
        names = (
            episode.task.env,
            episode.task.label,
            episode.policy,
            episode.player,
            episode.stop,
            failure.boundary if failure else "",
            failure.cause if failure else "",
        )
        for name, (column, numbers) in zip(names, self._numbers, strict=True):
            column.add(name, numbers)
        self._add_outcome(episode, episode.stop.failed)
        self._add_amounts(episode)

    def _add_outcome(self, episode: _SummarizedEpisode, failed: bool) -> None:
        columns = self.columns
        success = None if failed or not episode.turns else episode.turns[-1].info.success
        columns.reward.append(None if failed else sum(turn.reward for turn in episode.turns))
        columns.success.append(None if success is None else bool(success))
        columns.group.append(episode.group)
        columns.member.append(episode.member)
        columns.attempt.append(episode.attempt)

    def _add_amounts(self, episode: _SummarizedEpisode) -> None:
        columns = self.columns
        spans = [span for segment in episode.segments for span in segment.spans]
        usages = [turn.completion.usage for turn in episode.turns if turn.completion.usage is not None]
        sampled = sum(span.stop - span.start for span in spans) or sum(usage.completion_tokens for usage in usages)
        columns.turns.append(len(episode.turns))
        columns.sampled.append(sampled)
        columns.context.append(sum(int(len(segment.ids) // _LETTERS_PER_ID) for segment in episode.segments))
        columns.dollars.append(sum(usage.dollars for usage in usages))
        columns.seconds.append(round(episode.seconds, 4))
        columns.version.append(max((span.version for span in spans), default=-1))
        columns.step.append(episode.info.step if isinstance(episode.info.step, int) else -1)


def summarise(lines: list[bytes]) -> Columns:
    """Return the columns of all episodes in ``lines``."""
    columns = Columns()
    summariser = Summariser(columns)
    for line in lines:
        summariser.add(line)
    return columns
