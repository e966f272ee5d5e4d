"""What went wrong in an episode, and at which boundary."""

import traceback
from enum import StrEnum

import msgspec

from palestra.confidential import mask, mask_end, mask_start
from palestra.encoding import clean_text
from palestra.errors import Boundary, EpisodeError, boundary_of

__all__ = ["Failure", "Phase", "traceback_of"]

_LONGEST_MESSAGE = 4000
_LONGEST_TRACEBACK = 4000


class Phase(StrEnum):
    """What an episode was doing when something failed."""

    BOOT = "boot"
    RESET = "reset"
    ACT = "act"
    STEP = "step"
    CLOSE = "close"


class Failure(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """One error of an episode, with the boundary that it is attributed to."""

    boundary: Boundary
    phase: Phase
    kind: str
    """The class of the exception, or ``Deadline``."""
    message: str
    attempt: int = 0
    detail: str = ""
    """The traceback, for debugging. Not part of the digest."""

    @classmethod
    def of(cls, error: BaseException, phase: Phase, attempt: int = 0) -> "Failure":
        """Return the failure for ``error`` raised in ``phase``."""
        known = error if isinstance(error, EpisodeError) else None
        return cls(
            boundary=boundary_of(error, Boundary.POLICY if phase is Phase.ACT else Boundary.ENV),
            phase=phase,
            kind=(known.kind if known else "") or type(error).__qualname__,
            message=mask_start(clean_text(str(error) or repr(error)), _LONGEST_MESSAGE),
            attempt=attempt,
            detail=mask(clean_text((known.detail if known else "") or traceback_of(error))),
        )


def traceback_of(error: BaseException) -> str:
    """Return the traceback of ``error`` with secrets masked; only its end if it is long."""
    return mask_end("".join(traceback.format_exception(error)), _LONGEST_TRACEBACK)
