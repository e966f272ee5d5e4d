"""What travels between a client and a server: one set of types, two encodings.

A session speaks msgpack over one WebSocket; the same types travel as JSON over plain HTTP. Every frame is a typed struct with a
``type`` tag; unknown fields are refused, nothing is ever unpickled or evaluated, and an error is one of a closed set of codes.

::

    client  Hello ─▶              ─▶ Call(seq, request, deadline, verb) ─▶        ─▶ Beat ─▶
    server        ◀─ Welcome           ◀─ Reply(seq, request, result) | Fault       ◀─ Beat

``seq`` makes a call idempotent: the server runs each number once, answers a repeated one from memory, and refuses an older one.
``request`` names one sending of a call and is echoed, so that a reply is never taken for the answer to something else.
"""

from enum import StrEnum
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from palestra.encoding import encode_json, encode_msgpack
from palestra.errors import Boundary, SchemaError
from palestra.trajectory import Content, Task

__all__ = [
    "DEEPEST",
    "HTTP_STATUS",
    "PATH",
    "PROTOCOL_VERSION",
    "Ask",
    "Beat",
    "Call",
    "Close",
    "Code",
    "Done",
    "Fault",
    "FromClient",
    "FromServer",
    "Hello",
    "Limits",
    "Reply",
    "Reset",
    "Result",
    "Said",
    "SeedActions",
    "Shown",
    "Step",
    "Stepped",
    "Verb",
    "Welcome",
    "check_depth",
    "decode_frame",
    "decode_json_frame",
    "encode_frame",
    "encode_json_frame",
]

PROTOCOL_VERSION = 1
"""Raised when an old peer would misread a new one. Hello carries all that a client speaks."""

PATH = "/v1/session"
"""Where the WebSocket is."""

DEEPEST = 64
"""How deep values may be nested, in either direction. Only a task's params and an info can be nested at all."""

Natural = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Name = Annotated[str, msgspec.Meta(max_length=512)]
SessionId = Annotated[str, msgspec.Meta(max_length=64)]
Seconds = Annotated[float, msgspec.Meta(gt=0, le=86_400)]


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server allows. Told to every client in its Welcome, so that both sides keep the same rules."""

    heartbeat: float = 10.0
    """A client that has nothing to say sends a Beat after this many seconds."""
    ttl: float = 60.0
    """A session nobody spoke for during this many seconds is closed; until then it can be resumed."""
    max_message: int = 4 * 2**20
    """Bytes of the largest frame in either direction."""
    max_deadline: float = 600.0
    """The longest deadline a call may ask for, in seconds."""
    max_sessions: int = 20_000
    """Beyond this a Hello is answered with ``busy``."""
    max_workers: int = 64
    """Worker processes for environments that block; beyond this a Reset is answered with ``busy``."""
    max_waiting: int = 4096
    """Calls under way at once, over all sessions; beyond this a Call is answered with ``busy``."""
    drain: float = 30.0
    """Seconds that open sessions have to finish after SIGTERM."""


class Code(StrEnum):
    """Everything that can be wrong. There are no others."""

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
"""How a code is told over HTTP. ``failed`` is 424: the environment failed, the server did not."""


class _Frame(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", forbid_unknown_fields=True):
    """What all frames share."""


# ------------------------------------------------------------------------------------------------------------- from client


class Hello(_Frame, frozen=True, tag="hello"):
    """The first frame: which protocol, which environment, or which session to go on with."""

    versions: Annotated[tuple[Natural, ...], msgspec.Meta(min_length=1, max_length=16)]
    env: Name = ""
    """The id to play; ignored when a session is resumed."""
    session: SessionId = ""
    """The session to resume after a lost connection."""
    max_message: Annotated[int, msgspec.Meta(ge=1024, le=2**31)] = 4 * 2**20
    """The largest frame this client takes."""


class Reset(_Frame, frozen=True, tag="reset"):
    """Begin an episode."""

    task: Task


class Step(_Frame, frozen=True, tag="step"):
    """Take an action."""

    action: str


class Ask(_Frame, frozen=True, tag="ask"):
    """Ask for an action, where the environment offers one."""

    verb: Literal["oracle", "sample_random_action"]


class SeedActions(_Frame, frozen=True, tag="seed_actions"):
    """Make the following random actions depend on a seed."""

    seed: int


class Close(_Frame, frozen=True, tag="close"):
    """End the session. Allowed while another call is under way, which is then abandoned."""


Verb = Reset | Step | Ask | SeedActions | Close


class Call(_Frame, frozen=True, tag="call"):
    """Do something, once."""

    seq: Natural
    """Larger than that of every earlier call of the session. The same call sent again has the same number."""
    request: Natural
    """Names this sending; echoed."""
    deadline: Seconds
    """Seconds after which nobody waits for the answer any more."""
    verb: Verb


class Beat(_Frame, frozen=True, tag="beat"):
    """I am still here. The other side says the same."""

    request: Natural = 0


FromClient = Hello | Call | Beat


# ------------------------------------------------------------------------------------------------------------- from server


class Welcome(_Frame, frozen=True, tag="welcome"):
    """The session exists, under these rules."""

    version: Natural
    session: SessionId
    env: Name
    seq: Natural
    """The last call this session accepted; 0 for a new one."""
    heartbeat: Seconds
    ttl: Seconds
    max_message: Natural
    """The smaller of what the two sides take."""
    max_deadline: Seconds


class Shown(_Frame, frozen=True, tag="shown"):
    """What ``reset`` returned."""

    observation: Content
    info: dict[str, Any]
    floor: float = 0.0
    """What a player who never looks can score."""
    ceiling: float | None = None
    """What the best player can score where not every task can be solved."""


class Stepped(_Frame, frozen=True, tag="stepped"):
    """What ``step`` returned."""

    observation: Content
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]


class Said(_Frame, frozen=True, tag="said"):
    """An action the environment was asked for."""

    action: str


class Done(_Frame, frozen=True, tag="done"):
    """It is done; there is nothing to tell."""


Result = Shown | Stepped | Said | Done


class Reply(_Frame, frozen=True, tag="reply"):
    """The answer to a call."""

    seq: Natural
    request: Natural
    result: Result


class Fault(_Frame, frozen=True, tag="fault"):
    """The answer to a call, or to a frame, that did not work out."""

    code: Code
    message: str
    seq: Natural = 0
    request: Natural = 0
    retry_after: float = 0.0
    """Seconds after which it may work, for ``busy`` and ``draining``."""
    kind: str = ""
    """The class of the exception, for ``failed``: a name to show, never to look up."""
    boundary: Boundary = Boundary.INFRASTRUCTURE
    """Whose fault it is, for ``failed``."""


FromServer = Welcome | Reply | Fault | Beat


# ------------------------------------------------------------------------------------------------------------ to and fro

_T = TypeVar("_T")

encode_frame = encode_msgpack
encode_json_frame = encode_json

_from_client: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromClient)
_from_server: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(FromServer)
_json_decoders: dict[Any, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (FromClient, FromServer, Hello, Call, Reply | Fault, Welcome)
}


def decode_frame(data: bytes, kind: Any) -> Any:
    """A frame of ``FromClient`` or ``FromServer`` from msgpack; ``SchemaError`` for anything else whatever."""
    try:
        return (_from_client if kind is FromClient else _from_server).decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a frame: {error}") from None


def decode_json_frame(data: bytes, kind: Any) -> Any:
    """The same from JSON, where NaN and infinities are no numbers."""
    try:
        return _json_decoders[kind].decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SchemaError(f"not a frame: {error}") from None


def check_depth(value: Any) -> None:
    """``SchemaError`` if ``value`` is nested deeper than ``DEEPEST``."""
    level, depth = [value], 0
    while level := [item for outer in level for item in _inside(outer)]:
        depth += 1
        if depth > DEEPEST:
            raise SchemaError(f"nested more than {DEEPEST} deep")


def _inside(value: Any) -> list[Any]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [item for item in found if isinstance(item, dict | list | tuple)]
