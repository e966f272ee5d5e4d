"""Every datum that flows, frozen, in flow order. To read this file is to know the pipeline.

``Task`` → ``Message`` → ``Completion`` (with the ``Tokens`` that were sampled) → ``Turn`` → ``Segment`` → ``Trajectory`` →
``TrajectoryGroup``; and beside them why an episode stopped (``StopReason``) and what went wrong in it (``Failure``).

Tokens are the truth: a ``Segment`` holds flat ids and, for each stretch the model sampled, one ``Span``. The mask, the turn of
every token and its weight version are derived from the spans, so they cannot disagree with the ids, and a token costs four
bytes (eight if sampled). An episode has one segment as long as each prompt extends the one before, and one more each time it
does not.

What exists in millions is hidden from the garbage collector (``gc=False``): none of it can be part of a cycle.

A failed episode is data. ``Trajectory.reward`` is ``None`` for it, never zero, and ``failures`` says whose fault it was.
"""

import hashlib
import traceback
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from palestra.encoding import UNWRITABLE, Floats, Ints, clean_text, encode_json, encode_msgpack, tame
from palestra.errors import Boundary, EpisodeError

__all__ = [
    "SCHEMA_VERSION",
    "Completion",
    "Content",
    "Failure",
    "Finish",
    "Image",
    "Message",
    "Part",
    "Phase",
    "Segment",
    "Span",
    "StopReason",
    "Task",
    "Text",
    "Tokens",
    "ToolCall",
    "ToolResult",
    "Trajectory",
    "TrajectoryGroup",
    "Turn",
    "Usage",
    "text_of",
    "traceback_of",
    "writable",
]

SCHEMA_VERSION = 1
"""Written into every trajectory. It changes when an old reader would misread a new file."""


# ---------------------------------------------------------------------------------------------------------------- content


class Text(msgspec.Struct, frozen=True, tag="text"):
    """A stretch of text inside mixed content."""

    text: str


class Image(msgspec.Struct, frozen=True, tag="image"):
    """A picture, as the bytes of a file."""

    data: bytes
    media_type: str = "image/png"


Part = Text | Image
Content = str | tuple[Part, ...]
"""What an environment shows: text, or text and images in order."""


def text_of(content: Content) -> str:
    """The text of ``content``; an image shows as ``[image]``."""
    if isinstance(content, str):
        return content
    return "".join(part.text if isinstance(part, Text) else "[image]" for part in content)


# ------------------------------------------------------------------------------------------------------------------- task


class _FrozenDict(dict[str, Any]):
    """A dict that cannot change, so that a task can be hashed."""

    __slots__ = ()

    def _refuse(self, *_: object, **__: object) -> Any:
        raise TypeError("a task's params cannot be changed; make a new Task")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(encode_msgpack(self))

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        # Copying and unpickling fill a dict item by item, which this one refuses.
        return _FrozenDict, (dict(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_FrozenDict":
        return self


_NO_PARAMS = _FrozenDict()


class Task(msgspec.Struct, frozen=True, gc=False):
    """Names a start state completely: the same task gives the same first observation and the same dynamics anywhere."""

    env: str
    """The environment's id, or ``module:Class`` for one that is not registered."""
    seed: int = 0
    """From which the environment's own generator is derived."""
    index: int | None = None
    """The row of a data set, where the environment draws from one."""
    split: str = "train"
    """The part of the data set."""
    params: dict[str, Any] = {}
    """Whatever else the environment needs to know (JSON values only)."""

    def __post_init__(self) -> None:
        if not isinstance(self.params, _FrozenDict):
            msgspec.structs.force_setattr(self, "params", _FrozenDict(self.params) if self.params else _NO_PARAMS)

    @property
    def key(self) -> bytes:
        """A stable name of everything but the id: what the environment's generator is derived from."""
        if self.index is None and self.split == "train" and not self.params:
            return b""
        return encode_msgpack((self.index, self.split, self.params))


# --------------------------------------------------------------------------------------------------- messages and sampling


class Message(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One message of a conversation, as a chat template sees it."""

    role: Literal["system", "user", "assistant", "tool"]
    content: Content
    reasoning: str = ""
    """The thinking that came before an assistant's content, where the model keeps it apart."""


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call the model asked for, read out of its text."""

    name: str
    arguments: dict[str, Any]
    id: str = ""


class ToolResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a tool answered; ``ok`` is false when the text is an error told to the model."""

    text: str
    ok: bool = True


class Finish(StrEnum):
    """Why sampling stopped."""

    STOP = "stop"
    """The model ended its turn."""
    LENGTH = "length"
    """The turn's token limit cut it."""
    OVERFLOW = "overflow"
    """The prompt left no room to sample in."""
    EMPTY = "empty"
    """Nothing was sampled at all."""
    BUDGET = "budget"
    """The run may spend no more, so nothing was asked for."""


class Tokens(msgspec.Struct, frozen=True):
    """Exactly what went into the engine and what came out of it. Never made by tokenising text again."""

    prompt: Ints
    ids: Ints
    logprobs: Floats
    """Log-probability of each of ``ids`` under the distribution it was sampled from."""
    version: int = 0
    """Version of the weights that sampled the first of these tokens."""
    updates: tuple[tuple[int, int], ...] = ()
    """``(index, version)`` for every change of weights in mid-completion: from ``ids[index]`` on, that version sampled."""

    def __post_init__(self) -> None:
        if len(self.ids) != len(self.logprobs):
            raise ValueError(f"{len(self.ids)} sampled ids but {len(self.logprobs)} log-probs")
        bounds = [0, *(index for index, _ in self.updates), len(self.ids)]
        if self.updates and bounds != sorted(bounds):
            raise ValueError(f"updates {self.updates} are out of order or outside {len(self.ids)} sampled ids")

    @property
    def runs(self) -> tuple[tuple[int, int, int], ...]:
        """``(start, stop, version)`` of each stretch of ``ids`` that one version sampled; they cover all of it."""
        starts = [0, *(index for index, _ in self.updates)]
        stops = [*starts[1:], len(self.ids)]
        versions = [self.version, *(version for _, version in self.updates)]
        return tuple(run for run in zip(starts, stops, versions, strict=True) if run[0] < run[1])


class Usage(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What a completion cost."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    dollars: float = 0.0


class Completion(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What the policy wrote. ``text`` is the action the environment receives, to the letter."""

    text: str
    finish: Finish = Finish.STOP
    reasoning: str = ""
    tokens: Tokens | None = None
    """Taken out when the turn is recorded: a trajectory keeps tokens in its segments, once."""
    notes: tuple[Tokens, ...] = ()
    """What else was sampled for this action, before it: a summary of the history. Taken out like ``tokens``."""
    usage: Usage | None = None

    def __post_init__(self) -> None:
        if not self.text.isascii():
            msgspec.structs.force_setattr(self, "text", clean_text(self.text))
        if not self.reasoning.isascii():
            msgspec.structs.force_setattr(self, "reasoning", clean_text(self.reasoning))


# ---------------------------------------------------------------------------------------------------- the recorded episode


class Turn(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One observation, what the policy did about it, and what came of it."""

    observation: Content
    completion: Completion
    reward: float = 0.0
    info: dict[str, Any] = {}
    """What the environment said beside the observation that followed this action."""
    act_seconds: float = 0.0
    env_seconds: float = 0.0

    @property
    def action(self) -> str:
        """The text the environment received."""
        return self.completion.text


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """``ids[start:stop]`` of a segment were sampled, in this turn, by weights of this version."""

    start: int
    stop: int
    turn: int
    version: int = 0


class Segment(msgspec.Struct, frozen=True):
    """A stretch of context as the engine saw it, with the parts that were sampled marked by spans."""

    ids: Ints
    spans: tuple[Span, ...]
    logprobs: Floats
    """Of the sampled tokens only, in the order of ``ids``."""

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
        """True on sampled tokens, and only there."""
        mask = np.zeros(len(self.ids), dtype=np.bool_)
        for span in self.spans:
            mask[span.start : span.stop] = True
        return mask

    @property
    def turns(self) -> Ints:
        """The turn each sampled token belongs to; -1 on the others."""
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


class StopReason(StrEnum):
    """Why an episode ended. The first is the environment's word, the next are cuts, the last are failures."""

    TERMINATED = "terminated"

    TRUNCATED = "truncated"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    CONTEXT_OVERFLOW = "context_overflow"
    LENGTH_CUT = "length_cut"
    EMPTY_COMPLETION = "empty_completion"
    BUDGET = "budget"

    ERROR = "error"
    DEADLINE = "deadline"

    @property
    def failed(self) -> bool:
        """Whether the episode says nothing about the policy's skill."""
        return self in (StopReason.ERROR, StopReason.DEADLINE)


class Phase(StrEnum):
    """What an episode was doing when something failed."""

    BOOT = "boot"
    RESET = "reset"
    ACT = "act"
    STEP = "step"
    CLOSE = "close"


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One thing that went wrong, with the boundary it is attributed to."""

    boundary: Boundary
    phase: Phase
    kind: str
    """The exception's class, or ``Deadline``."""
    message: str
    attempt: int = 0
    detail: str = ""
    """The traceback, for whoever mends it. Not part of the digest."""

    @classmethod
    def of(cls, error: BaseException, phase: Phase, attempt: int = 0) -> "Failure":
        """What ``error`` means when it is raised in ``phase``."""
        told = error if isinstance(error, EpisodeError) else None
        blamed = Boundary.POLICY if phase is Phase.ACT else Boundary.ENV
        return cls(
            boundary=blamed if told is None else told.boundary,
            phase=phase,
            kind=(told.kind if told else "") or type(error).__qualname__,
            message=clean_text(str(error) or repr(error)),
            attempt=attempt,
            detail=clean_text((told.detail if told else "") or traceback_of(error)),
        )


_LONGEST_TRACEBACK = 4000


def traceback_of(error: BaseException) -> str:
    """The traceback of ``error``, its end if it is long."""
    return "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]


class Trajectory(msgspec.Struct, frozen=True):
    """One episode as one player lived it."""

    task: Task
    stop: StopReason
    turns: tuple[Turn, ...] = ()
    segments: tuple[Segment, ...] = ()
    final_observation: Content = ""
    info: dict[str, Any] = {}
    """What ``reset`` said beside the first observation."""
    failures: tuple[Failure, ...] = ()
    """Everything that went wrong: earlier attempts, this one, and the clean-up."""
    player: str = ""
    """Empty where there is only one."""
    policy: str = ""
    seed: int = 0
    """The run's seed; with the task, group, member and attempt it fixes every random choice of this episode."""
    group: int = 0
    """Members of one group played the same task under the same horizon."""
    member: int = 0
    attempt: int = 0
    """How many earlier attempts failed for reasons of infrastructure."""
    seconds: float = 0.0
    schema: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema != SCHEMA_VERSION:
            raise ValueError(f"this trajectory has schema {self.schema}, this version of palestra reads {SCHEMA_VERSION}")

    @property
    def reward(self) -> float | None:
        """The sum of the turns' rewards; ``None`` if the episode failed, which is not a zero."""
        return None if self.stop.failed else sum(turn.reward for turn in self.turns)

    @property
    def success(self) -> bool | None:
        """What the environment said of the outcome (``info["success"]`` of the last turn), if it said anything."""
        said = None if self.stop.failed or not self.turns else self.turns[-1].info.get("success")
        return None if said is None else bool(said)

    @property
    def terminated(self) -> bool:
        """The environment reached an end of its own."""
        return self.stop is StopReason.TERMINATED

    @property
    def truncated(self) -> bool:
        """Somebody cut the episode short; its future value is unknown, not zero."""
        return not self.terminated and not self.stop.failed

    def digest(self) -> str:
        """SHA-256 over everything but the clock and tracebacks: equal digests mean the same episode."""
        still = tuple(msgspec.structs.replace(turn, act_seconds=0.0, env_seconds=0.0) for turn in self.turns)
        failures = tuple(msgspec.structs.replace(failure, detail="") for failure in self.failures)
        bare = msgspec.structs.replace(self, turns=still, failures=failures, seconds=0.0)
        return hashlib.sha256(encode_msgpack(bare)).hexdigest()


class TrajectoryGroup(msgspec.Struct, frozen=True):
    """The members of one group: one task, one horizon, several tries."""

    task: Task
    members: tuple[Trajectory, ...]

    @property
    def rewards(self) -> tuple[float | None, ...]:
        """Each member's reward; ``None`` for the failed ones."""
        return tuple(member.reward for member in self.members)


# ------------------------------------------------------------------------------------------------------------- to be written


def writable(trajectory: Trajectory) -> Trajectory:
    """``trajectory`` itself if it can be written, else a copy in which whatever cannot be is marked in place.

    An environment that puts a live object into ``info`` must not cost the episode; what was lost stays visible.
    """
    try:
        encode_json(trajectory)
    except UNWRITABLE:
        return msgspec.structs.replace(
            trajectory,
            turns=tuple(
                msgspec.structs.replace(turn, observation=_tame_content(turn.observation), info=tame(turn.info))
                for turn in trajectory.turns
            ),
            final_observation=_tame_content(trajectory.final_observation),
            info=tame(trajectory.info),
        )
    return trajectory


def _tame_content(content: Content) -> Content:
    if isinstance(content, str):
        return clean_text(content)
    return tuple(Text(clean_text(part.text)) if isinstance(part, Text) else part for part in content)
