"""The frames between client and server: one set of types, two encodings.

A session sends msgpack over one WebSocket; the same types travel as JSON over plain HTTP. Every frame is a typed struct with a
``type`` tag. Unknown fields are refused, nothing is ever unpickled or evaluated, and errors come from a closed set of codes.

::

    client  Hello ─▶              ─▶ CallFrame(seq, request, deadline, verb) ─▶        ─▶ Beat ─▶
    server        ◀─ Welcome           ◀─ ReplyFrame(seq, request, result) | Fault       ◀─ Beat

``seq`` makes a call idempotent: the server runs each number once, answers a repeated one from memory, and refuses an older one.
``request`` numbers each sending of a call. The reply echoes it, so the client cannot match a reply to the wrong call.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from palestra.errors import Boundary, SchemaError
from palestra.foundation.encoding import encode_json, encode_msgpack
from palestra.trajectory import Content, Task

__all__ = [
    "DEEPEST",
    "HTTP_STATUS",
    "MOST_STRUCTURE",
    "PATH",
    "PROTOCOL_VERSION",
    "Ask",
    "Beat",
    "CallFrame",
    "Close",
    "Code",
    "Done",
    "Fault",
    "FromClient",
    "FromServer",
    "Hello",
    "ReplyFrame",
    "ResetFrame",
    "Result",
    "SeedActions",
    "ServerLimits",
    "Shown",
    "StepFrame",
    "Stepped",
    "Suggested",
    "Verb",
    "Welcome",
    "check_depth",
    "decode_frame",
    "decode_json_frame",
    "encode_frame",
    "encode_json_frame",
]

PROTOCOL_VERSION = 1
"""Incremented when an old peer would misread a new one. Hello lists all versions that a client speaks."""

PATH = "/v1/session"
"""The path of the WebSocket."""

DEEPEST = 64
"""Deepest allowed nesting of values, in either direction. Only a task's params and an info can be nested."""

MOST_STRUCTURE = 2**15
"""Most bytes of a frame from a client that is not a step. A step may be as large as ``max_message``."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(max_length=512)]
SessionId = Annotated[str, msgspec.Meta(max_length=64)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a server. Welcome carries them, so that client and server apply the same ones."""

    heartbeat: float = 10.0
    """Seconds of silence after which a client sends a Beat."""
    ttl: float = 60.0
    """Seconds without renewal after which a session is closed; until then it can be resumed."""
    max_message: int = 4 * 2**20
    """Largest frame in either direction, in bytes."""
    max_deadline: float = 600.0
    """Longest deadline of a call, in seconds."""
    max_sessions: int = 20_000
    """Most open sessions; then Hello is answered with ``busy``. Tokens share this limit and the next four equally."""
    max_workers: int = 64
    """Most worker processes for blocking environments; then a reset is answered with ``busy``."""
    max_unfinished: int = 64 * 2**20
    """Most bytes of frames and bodies that have arrived in part; then the connection is closed."""
    max_remembered: int = 2**28
    """Most bytes of the last calls and answers of all sessions, kept for repetition; then a call is answered with ``busy``."""
    max_action: int = 2**20
    """Most characters of an action."""
    max_waiting: int = 4096
    """Most calls running at once, over all sessions; then a call is answered with ``busy``."""
    max_unauthenticated: int = 1000
    """Most connections without a token; then the oldest is closed. At most a quarter of all connections."""
    head: float = 10.0
    """Seconds that a connection may take to present a token."""
    drain: float = 30.0
    """Seconds that running episodes have to finish after SIGTERM."""


class Code(StrEnum):
    """The closed set of error codes."""

    UNAUTHORIZED = "unauthorized"
    BAD_FRAME = "bad_frame"
    TOO_LARGE = "too_large"
    VERSION = "version"
    UNKNOWN_ENV = "unknown_env"
    NO_SESSION = "no_session"
    CONFLICT = "conflict"
    STALE = "stale"
    BUSY = "busy"
    DRAINING = "draining"
    DEADLINE = "deadline"
    EPISODE_OVER = "episode_over"
    UNSUPPORTED = "unsupported"
    USAGE = "usage"
    FAILED = "failed"
    INTERNAL = "internal"


HTTP_STATUS: dict[Code, int] = {
    Code.UNAUTHORIZED: 401,
    Code.BAD_FRAME: 400,
    Code.TOO_LARGE: 413,
    Code.VERSION: 400,
    Code.UNKNOWN_ENV: 404,
    Code.NO_SESSION: 404,
    Code.CONFLICT: 409,
    Code.STALE: 409,
    Code.BUSY: 429,
    Code.DRAINING: 429,
    Code.DEADLINE: 408,
    Code.EPISODE_OVER: 409,
    Code.UNSUPPORTED: 422,
    Code.USAGE: 422,
    Code.FAILED: 424,
    Code.INTERNAL: 500,
}
"""The HTTP status of each code. ``failed`` is 424: the environment failed, not the server."""


class _TaggedFrame(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", forbid_unknown_fields=True):
    """The struct options that all frames share."""


# ------------------------------------------------------------------------------------------------------------- from client


class Hello(_TaggedFrame, frozen=True, tag="hello"):
    """The first frame: the protocol versions, and the environment to play or the session to resume."""

    versions: Annotated[tuple[Natural, ...], msgspec.Meta(min_length=1, max_length=16)]
    env: Name = ""
    """The id to play; ignored when a session is resumed."""
    session: SessionId = ""
    """The session to resume after a lost connection."""
    max_message: Annotated[int, msgspec.Meta(ge=1024, le=2**31)] = 4 * 2**20
    """The largest frame that this client accepts, in bytes."""


class ResetFrame(_TaggedFrame, frozen=True, tag="reset"):
    """Begin an episode."""

    task: Task


class StepFrame(_TaggedFrame, frozen=True, tag="step"):
    """Take an action."""

    action: str


class Ask(_TaggedFrame, frozen=True, tag="ask"):
    """Ask for an action, if the environment offers one."""

    verb: Literal["oracle", "sample_random_action"]


class SeedActions(_TaggedFrame, frozen=True, tag="seed_actions"):
    """Seed the random actions that follow."""

    seed: int


class Close(_TaggedFrame, frozen=True, tag="close"):
    """End the session. A client may send it while another call runs, which is then abandoned."""


Verb = ResetFrame | StepFrame | Ask | SeedActions | Close


class CallFrame(_TaggedFrame, frozen=True, tag="call"):
    """Run a verb exactly once."""

    seq: Natural
    """Larger than the number of every earlier call of the session. A call that is sent again keeps its number."""
    request: Natural
    """Number of this sending; the reply echoes it."""
    deadline: Seconds
    """Seconds after which the client stops waiting for the answer."""
    verb: Verb


class Beat(_TaggedFrame, frozen=True, tag="beat"):
    """Renew the lease. The server answers with a Beat."""

    request: Natural = 0


FromClient = Hello | CallFrame | Beat


# ------------------------------------------------------------------------------------------------------------- from server


class Welcome(_TaggedFrame, frozen=True, tag="welcome"):
    """The session exists, under these limits."""

    version: Natural
    session: SessionId
    env: Name
    seq: Natural
    """Number of the last call that this session accepted; 0 for a new one."""
    heartbeat: Seconds
    ttl: Seconds
    max_message: Natural
    """The smaller of the two sides' limits, in bytes."""
    max_deadline: Seconds


class Shown(_TaggedFrame, frozen=True, tag="shown"):
    """The result of ``reset``."""

    observation: Content
    info: dict[str, Any]
    floor: float = 0.0
    """The score of a policy that ignores observations."""
    ceiling: float | None = None
    """The best possible mean score, if not every task can be solved."""


class Stepped(_TaggedFrame, frozen=True, tag="stepped"):
    """The result of ``step``."""

    observation: Content
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Suggested(_TaggedFrame, frozen=True, tag="suggested"):
    """The action that an ``Ask`` requested."""

    action: str


class Done(_TaggedFrame, frozen=True, tag="done"):
    """The verb ran and returns nothing."""


Result = Shown | Stepped | Suggested | Done


class ReplyFrame(_TaggedFrame, frozen=True, tag="reply"):
    """The answer to a call."""

    seq: Natural
    request: Natural
    result: Result


class Fault(_TaggedFrame, frozen=True, tag="fault"):
    """The answer to a call or frame that failed."""

    code: Code
    message: str
    seq: Natural = 0
    request: Natural = 0
    retry_after: float = 0.0
    """Seconds after which to try again, for ``busy`` and ``draining``."""
    kind: str = ""
    """The class name of the exception, for ``failed``. It is only shown, never looked up."""
    boundary: Boundary = Boundary.INFRASTRUCTURE
    """The boundary that failed, for ``failed``."""


FromServer = Welcome | ReplyFrame | Fault | Beat


# ---------------------------------------------------------------------------------------------------- encoding and decoding

_T = TypeVar("_T")

encode_frame = encode_msgpack
encode_json_frame = encode_json

_from_client: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromClient)
_from_server: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromServer)
_json_decoders: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (FromClient, FromServer, Hello, CallFrame, ReplyFrame | Fault, Welcome)
}


class _VerbKind(msgspec.Struct):
    type: str = ""


class _Outline(msgspec.Struct):
    verb: _VerbKind | None = None


_msgpack_outline = msgspec.msgpack.Decoder(_Outline)
_json_outline = msgspec.json.Decoder(_Outline)


def _check_size(data: bytes, outline: "msgspec.msgpack.Decoder[_Outline] | msgspec.json.Decoder[_Outline]") -> None:
    """Raise ``SchemaError`` for a large frame that is not a step, before its values are made.

    A step has one text. A task may hold millions of empty lists, which take 80 times the bytes of the frame and hold the event
    loop while they are made.
    """
    if len(data) > MOST_STRUCTURE:
        verb = outline.decode(data).verb
        if verb is None or verb.type != "step":
            raise SchemaError(f"a frame of {len(data)} bytes; one that is not a step has at most {MOST_STRUCTURE}")


def decode_frame(data: bytes, kind: Any) -> Any:
    """Decode a frame of ``FromClient`` or ``FromServer`` from msgpack. Raise ``SchemaError`` for anything else."""
    try:
        if kind is FromClient:
            _check_size(data, _msgpack_outline)
        return (_from_client if kind is FromClient else _from_server).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a frame: {error}") from None


def decode_json_frame(data: bytes, kind: Any) -> Any:
    """Do the same from JSON, where NaN and infinities are not numbers."""
    try:
        if kind in (Hello, CallFrame):
            _check_size(data, _json_outline)
        return _json_decoders[kind].decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a frame: {error}") from None


def check_depth(value: Any) -> None:
    """Raise ``SchemaError`` if ``value`` is nested deeper than ``DEEPEST``."""
    level, depth = [value], 0
    while level := [item for outer in level for item in _inside(outer)]:
        depth += 1
        if depth > DEEPEST:
            raise SchemaError(f"nested more than {DEEPEST} deep")


def _inside(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [item for item in items if isinstance(item, dict | list | tuple)]
