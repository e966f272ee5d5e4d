"""The exception tree. Every message says what was got, what was expected, and what to do.

::

    PalestraError
    ├── UsageError (ValueError)          the caller made a mistake; nothing is retried
    │   ├── UnknownEnv                   no such id; the nearest ones are named
    │   ├── MissingExtra                 the id is known, a package or program for it is not installed
    │   ├── MissingData                  the id is known, its data set is not on this machine
    │   ├── EpisodeOver                  step() after the end, or before the first reset()
    │   └── Unsupported                  this environment has no oracle / random action / fork
    ├── SchemaError (ValueError)         data on disk or on a wire is not what it claims to be
    └── EpisodeError                     something failed inside an episode, at one boundary
        ├── PolicyError                  the model, its API or its parser
        ├── EnvError                     the environment's own code
        ├── ToolError                    a tool the agent called
        ├── GraderError                  the code that scores
        └── InfrastructureError          a machine, process or connection: retried, never scored
            └── WorkerDied               a worker process ended under an environment

    HeldLoop (UserWarning)               a plain environment stalled all episodes of its process

Every exception here is built from one message string, so that it survives pickling and can be told over a wire.
"""

from enum import StrEnum
from typing import ClassVar

__all__ = [
    "Boundary",
    "EnvError",
    "EpisodeError",
    "EpisodeOver",
    "GraderError",
    "HeldLoop",
    "InfrastructureError",
    "MissingData",
    "MissingExtra",
    "PalestraError",
    "PolicyError",
    "SchemaError",
    "ToolError",
    "UnknownEnv",
    "Unsupported",
    "UsageError",
    "WorkerDied",
]


class Boundary(StrEnum):
    """Whose fault an episode's failure is."""

    POLICY = "policy"
    ENV = "env"
    TOOL = "tool"
    GRADER = "grader"
    INFRASTRUCTURE = "infrastructure"


class PalestraError(Exception):
    """The root: ``except PalestraError`` catches everything Palestra raises on purpose."""


class UsageError(PalestraError, ValueError):
    """The caller made a mistake that the message explains."""


class UnknownEnv(UsageError):
    """No environment has this id."""


class MissingExtra(UsageError):
    """The environment is known, but something it needs is not installed."""


class MissingData(UsageError):
    """The environment is known, but the data set it draws from is not on this machine."""


class EpisodeOver(UsageError):
    """``step`` was called on an episode that has ended or has not begun."""


class Unsupported(UsageError):
    """The environment does not offer this optional verb."""


class SchemaError(PalestraError, ValueError):
    """Bytes that do not decode to what they should be."""


class EpisodeError(PalestraError):
    """A failure inside an episode, attributed to one boundary.

    One that was raised elsewhere (a worker process, a server) and told here keeps the ``kind`` and ``detail`` of the original.
    """

    boundary: ClassVar[Boundary]

    kind: str = ""
    """The class of the original exception."""
    detail: str = ""
    """The traceback of the original exception."""


class PolicyError(EpisodeError):
    """The policy failed: the model, its API, or the reading of its answer."""

    boundary = Boundary.POLICY


class EnvError(EpisodeError):
    """The environment's own code failed or broke the contract."""

    boundary = Boundary.ENV


class ToolError(EpisodeError):
    """A tool failed in a way that the agent cannot be told about."""

    boundary = Boundary.TOOL


class GraderError(EpisodeError):
    """The code that scores an answer failed."""

    boundary = Boundary.GRADER


class InfrastructureError(EpisodeError):
    """A machine, process or connection failed: the episode says nothing about the policy."""

    boundary = Boundary.INFRASTRUCTURE


class WorkerDied(InfrastructureError):
    """The worker process that hosted an environment ended by itself."""


class HeldLoop(UserWarning):
    """A plain environment kept the event loop, and with it every other episode, waiting."""
