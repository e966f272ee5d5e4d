"""Failures of an episode: the error, and at which boundary it occurred."""

import traceback
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

import msgspec

from palestra.errors import Boundary, EpisodeError, boundary_of
from palestra.foundation.confidential import mask, mask_end, mask_start
from palestra.foundation.encoding import clean_text

__all__ = ["Failure", "Phase", "message_of", "traceback_of"]

_LONGEST_MESSAGE = 4000
_LONGEST_TRACEBACK = 4000


class Phase(StrEnum):
    """The part of an episode in which something failed."""

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
        """Return the failure for ``error`` raised in ``phase``. Never raises, whatever ``error`` does when it is looked at."""
        otherwise = Boundary.POLICY if phase is Phase.ACT else Boundary.ENV
        # Asked of the type: an object may lie about its __class__, or raise when it is asked.
        ours = issubclass(type(error), EpisodeError)
        return cls(
            boundary=_asked(lambda: Boundary(boundary_of(error, otherwise)), otherwise),
            phase=phase,
            kind=_text(lambda: error.kind if ours else "") or _text(lambda: type(error).__qualname__) or "Exception",  # type: ignore[attr-defined]
            message=mask_start(message_of(error), _LONGEST_MESSAGE),
            attempt=attempt,
            detail=mask(_text(lambda: error.detail if ours else "") or traceback_of(error)),  # type: ignore[attr-defined]
        )


def message_of(error: BaseException) -> str:
    """Return the text of ``error``, or its ``repr`` if it has none. Never raises."""
    message = _text(lambda: str(error)) or _text(lambda: repr(error))
    return message or f"{_text(lambda: type(error).__qualname__) or 'an exception'}, whose text cannot be shown"


def traceback_of(error: BaseException) -> str:
    """Return the traceback of ``error`` with secrets masked; only its end if it is long. Never raises."""
    lines = _text(lambda: "".join(traceback.format_exception(error)))
    return mask_end(lines or "the traceback cannot be shown", _LONGEST_TRACEBACK)


_T = TypeVar("_T")


def _asked(question: Callable[[], _T], otherwise: _T) -> _T:
    """The answer of an object that a stranger wrote; ``otherwise`` if it raises anything."""
    try:
        return question()
    except BaseException:  # noqa: BLE001 - a stranger's __str__ may raise even a KeyboardInterrupt
        return otherwise


def _text(question: Callable[[], object]) -> str:
    """The answer as text that a file can hold; empty if it is no text."""
    answer = _asked(question, None)
    # str.__str__ copies a subclass of str, whose methods would be the stranger's.
    return clean_text(str.__str__(answer)) if issubclass(type(answer), str) else ""
