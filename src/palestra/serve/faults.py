"""Exceptions on the server as a client learns of them: a code, a short message, never a traceback."""

from palestra.errors import EpisodeOver, Unsupported, UsageError
from palestra.foundation.confidential import mask_start
from palestra.serve.wire import Code, Fault
from palestra.trajectory import Failure, Phase

__all__ = ["LONGEST_MESSAGE", "RETRY_AFTER", "fault_of"]

LONGEST_MESSAGE = 2000
"""Characters of an exception's message that are sent to a client."""
RETRY_AFTER = 0.5
"""Seconds that a refused client should wait before it tries again."""


def fault_of(error: BaseException) -> Fault:
    """Return the fault that reports ``error``, with secrets masked. Never raises, whatever the methods of ``error`` do."""
    failure = Failure.of(error, Phase.STEP)
    message = mask_start(failure.message, LONGEST_MESSAGE)
    # Asked of the type: an object may lie about its __class__.
    if issubclass(type(error), UsageError):
        return Fault(code=_usage_code(type(error)), message=message, kind=failure.kind)
    return Fault(code=Code.FAILED, message=message, kind=failure.kind, boundary=failure.boundary)


def _usage_code(kind: type[BaseException]) -> Code:
    if issubclass(kind, Unsupported):
        return Code.UNSUPPORTED
    return Code.EPISODE_OVER if issubclass(kind, EpisodeOver) else Code.USAGE
