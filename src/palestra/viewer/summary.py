"""What the lists of the viewer show of an episode, read out of its JSON line without decoding the rest.

A run of 10,000 episodes is half a gigabyte, most of it token ids. The shapes below name only what a list needs; everything else
is skipped while parsing, and the ids stay raw bytes of which only the length is taken. Columns instead of rows, and strings by
number, keep a hundred thousand episodes small in memory and on the way to the page.
"""

from typing import Any

import msgspec

from palestra.encoding import encode_json
from palestra.errors import Boundary, SchemaError
from palestra.trajectory import Span, StopReason, Usage

__all__ = ["Columns", "Names", "Summariser", "summarise"]

# An id is four bytes, and base64 writes three bytes as four letters.
_LETTERS_PER_ID = 16 / 3


class Names(msgspec.Struct):
    """A column of strings that repeat: each kept once, and its number for every row."""

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

    env: Names = msgspec.field(default_factory=Names)
    task: Names = msgspec.field(default_factory=Names)
    """What names the task inside its environment: ``seed 3``."""
    policy: Names = msgspec.field(default_factory=Names)
    player: Names = msgspec.field(default_factory=Names)
    stop: Names = msgspec.field(default_factory=Names)
    boundary: Names = msgspec.field(default_factory=Names)
    """Whose fault it was, for failed episodes; empty for the others."""
    reward: list[float | None] = []
    success: list[bool | None] = []
    turns: list[int] = []
    sampled: list[int] = []
    """Tokens the policy wrote."""
    context: list[int] = []
    """Tokens recorded in all segments, the sampled ones included."""
    dollars: list[float] = []
    seconds: list[float] = []
    group: list[int] = []
    member: list[int] = []
    attempt: list[int] = []
    version: list[int] = []
    """The newest weights that sampled a token of it; -1 if none did."""
    step: list[int] = []
    """The training step that learned from it; -1 outside training."""

    def __len__(self) -> int:
        return len(self.reward)


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
    attempt: int = 0


class _Episode(msgspec.Struct):
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


_decoder = msgspec.json.Decoder(_Episode)


class Summariser:
    """Adds episodes to columns."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        names = (columns.env, columns.task, columns.policy, columns.player, columns.stop, columns.boundary)
        self._numbers = [(column, {name: number for number, name in enumerate(column.values)}) for column in names]

    def add(self, line: bytes | memoryview) -> None:
        """Append the episode in ``line``, or ``SchemaError``."""
        try:
            episode = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise SchemaError(f"not a Trajectory: {error}") from None
        failed = episode.stop.failed
        # The first failure of the last attempt: earlier ones were retried, later ones came of it.
        last = [failure.boundary for failure in episode.failures if failure.attempt == episode.attempt]
        boundary = last[0] if failed and last else ""
        names = (episode.task.env, episode.task.label, episode.policy, episode.player, episode.stop, boundary)
        for name, (column, numbers) in zip(names, self._numbers, strict=True):
            column.add(name, numbers)
        self._add_outcome(episode, failed)
        self._add_amounts(episode)

    def _add_outcome(self, episode: _Episode, failed: bool) -> None:
        columns = self.columns
        said = None if failed or not episode.turns else episode.turns[-1].info.success
        columns.reward.append(None if failed else sum(turn.reward for turn in episode.turns))
        columns.success.append(None if said is None else bool(said))
        columns.group.append(episode.group)
        columns.member.append(episode.member)
        columns.attempt.append(episode.attempt)

    def _add_amounts(self, episode: _Episode) -> None:
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
    """The columns of all episodes in ``lines``."""
    columns = Columns()
    summariser = Summariser(columns)
    for line in lines:
        summariser.add(line)
    return columns
