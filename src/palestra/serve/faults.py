"""What a client learns about an exception on the server: a code, a short message, never a traceback."""

from palestra.confidential import mask_start
from palestra.encoding import clean_text
from palestra.errors import Boundary, EpisodeError, EpisodeOver, Unsupported, UsageError, boundary_of
from palestra.serve.wire import Code, Fault

__all__ = ["LONGEST_MESSAGE", "RETRY_AFTER", "fault_of"]

LONGEST_MESSAGE = 2000
"""Characters of an exception's message that are sent to a client."""
RETRY_AFTER = 0.5
"""Seconds that a refused client should wait before it tries again."""


def fault_of(error: BaseException) -> Fault:
    """Return the fault that reports ``error``, with secrets masked."""
    message = mask_start(clean_text(str(error) or repr(error)), LONGEST_MESSAGE)
    if isinstance(error, UsageError):
        return Fault(code=_usage_code(error), message=message, kind=type(error).__qualname__)
    kind = error.kind if isinstance(error, EpisodeError) else ""
    boundary = boundary_of(error, Boundary.ENV)
    return Fault(code=Code.FAILED, message=message, kind=kind or type(error).__qualname__, boundary=boundary)


def _usage_code(error: UsageError) -> Code:
    if isinstance(error, Unsupported):
        return Code.UNSUPPORTED
    return Code.EPISODE_OVER if isinstance(error, EpisodeOver) else Code.USAGE
