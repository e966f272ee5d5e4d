"""The exception tree. Every message says what happened, what was expected, and what to do.

::

    PalestraError
    ├── UsageError (ValueError)          the caller made a mistake; nothing is retried
    │   ├── UnknownEnv                   no such id; the message names the nearest ones
    │   ├── MissingExtra                 the id is known, but a package or program that it needs is not installed
    │   ├── MissingData                  the id is known, but its data set is not on this machine
    │   ├── EpisodeOver                  step() after the end, or before the first reset()
    │   ├── NotBegun                     the code used the generator of a task before super().reset()
    │   └── Unsupported                  this environment has no oracle / random action / fork
    ├── SchemaError (ValueError)         data on disk or on a wire is not what it claims to be
    └── EpisodeError                     something failed inside an episode, at one boundary
        ├── PolicyError                  the model, its API or its parser
        ├── EnvError                     the environment's own code
        ├── ToolError                    a tool that the agent called
        ├── GraderError                  the code that scores an answer
        └── InfrastructureError          a machine, process or connection: retried, never scored
            └── WorkerDied               a worker process ended under an environment

    EventLoopBlocked (UserWarning)       a plain environment blocked all episodes of its process

Every exception here is built from one message string, so that it can be pickled and sent over a wire.
"""

import errno
from enum import StrEnum
from typing import ClassVar

__all__ = [
    "Boundary",
    "EnvError",
    "EpisodeError",
    "EpisodeOver",
    "EventLoopBlocked",
    "GraderError",
    "InfrastructureError",
    "MissingData",
    "MissingExtra",
    "NotBegun",
    "PalestraError",
    "PolicyError",
    "SchemaError",
    "ToolError",
    "UnknownEnv",
    "Unsupported",
    "UsageError",
    "WorkerDied",
    "boundary_of",
    "is_infrastructure",
]

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC, errno.EAGAIN})
"""Error numbers of a system that is out of descriptors, memory, disk space or processes."""


class Boundary(StrEnum):
    """The boundary that caused an episode's failure."""

    POLICY = "policy"
    ENV = "env"
    TOOL = "tool"
    GRADER = "grader"
    INFRASTRUCTURE = "infrastructure"


class PalestraError(Exception):
    """The root: ``except PalestraError`` catches everything that Palestra raises on purpose."""


class UsageError(PalestraError, ValueError):
    """The caller made a mistake that the message explains."""


class UnknownEnv(UsageError):
    """No environment has this id."""


class MissingExtra(UsageError):
    """The environment is known, but a package or program that it needs is not installed."""


class MissingData(UsageError):
    """The environment is known, but its data set is not on this machine."""


class EpisodeOver(UsageError):
    """``step`` was called on an episode that has ended or has not begun."""


class NotBegun(UsageError):
    """The code used the environment's generator before ``super().reset()`` made it."""


class Unsupported(UsageError):
    """The environment does not offer this optional method."""


class SchemaError(PalestraError, ValueError):
    """The bytes do not decode to the expected type."""


class EpisodeError(PalestraError):
    """A failure inside an episode, attributed to one boundary.

    An error that comes from elsewhere (a worker process, a server) keeps the ``kind`` and ``detail`` of the original.
    """

    boundary: ClassVar[Boundary]

    kind: str = ""
    """The class of the original exception."""
    detail: str = ""
    """The traceback of the original exception."""


class PolicyError(EpisodeError):
    """The policy failed: the model, its API, or the parsing of its answer."""

    boundary = Boundary.POLICY


class EnvError(EpisodeError):
    """The environment's code failed or broke the contract."""

    boundary = Boundary.ENV


class ToolError(EpisodeError):
    """A tool failed for a reason that the agent cannot act on."""

    boundary = Boundary.TOOL


class GraderError(EpisodeError):
    """The code that scores an answer failed."""

    boundary = Boundary.GRADER


class InfrastructureError(EpisodeError):
    """A machine, process or connection failed: the episode is no evidence about the policy."""

    boundary = Boundary.INFRASTRUCTURE


class WorkerDied(InfrastructureError):
    """The worker process that hosted an environment ended by itself."""


class EventLoopBlocked(UserWarning):
    """A plain environment blocked the event loop, and so every other episode."""


def boundary_of(error: BaseException, otherwise: Boundary) -> Boundary:
    """Return the boundary at fault: the error's own, infrastructure if ``is_infrastructure(error)``, else ``otherwise``."""
    if isinstance(error, EpisodeError):
        return error.boundary
    return Boundary.INFRASTRUCTURE if is_infrastructure(error) else otherwise


def is_infrastructure(error: BaseException | None) -> bool:
    """Return whether ``error`` is a failure of the machine, not of the policy, environment or tool that met it.

    These are: an ``InfrastructureError``; a package, program or data set that is not installed; and an ``OSError`` which means
    that descriptors, memory, disk space or processes are used up. Groups and explicit causes (``raise … from …``) are searched.
    """
    if error is None:
        return False
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_infrastructure, error.exceptions))
    if isinstance(error, InfrastructureError | MissingExtra | MissingData):
        return True
    if isinstance(error, OSError) and error.errno in _EXHAUSTED:
        return True
    return is_infrastructure(error.__cause__)
