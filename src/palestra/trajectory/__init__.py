"""The data that flows through Palestra: frozen types, one file per idea, listed here in flow order.

``Task`` → ``Message`` → ``Completion`` (with the ``Tokens`` that the engine sampled) → ``Turn`` → ``Segment`` →
``Trajectory`` → ``TrajectoryGroup``. Beside them stand the reason why an episode stopped (``StopReason``) and what went
wrong in it (``Failure``). An episode of a foreign agent has an ``AgentRecord`` as well. Read ``content``,
``task``, ``completion``, ``segment``, ``agent``, ``failure``, ``episode`` in this order;
``writing`` prepares a trajectory for a file, and ``flat`` for another trainer.

Types that exist in millions are hidden from the garbage collector (``gc=False``): none of them can be part of a cycle.
"""

from palestra.trajectory.agent import AgentCall, AgentRecord, Branch, PlayedRecord
from palestra.trajectory.completion import (
    Completion,
    Finish,
    Message,
    Tokens,
    ToolCall,
    ToolResult,
    Usage,
    observed,
    opening_of,
)
from palestra.trajectory.content import Content, Image, Part, Text, text_of
from palestra.trajectory.episode import LARGEST_REWARD, SCHEMA_VERSION, StopReason, Trajectory, TrajectoryGroup, Turn, verdicts
from palestra.trajectory.failure import Failure, Phase, message_of, traceback_of
from palestra.trajectory.flat import FlatSegment, flatten
from palestra.trajectory.segment import Segment, Span
from palestra.trajectory.task import Task
from palestra.trajectory.writing import line_of, writable

__all__ = [
    "LARGEST_REWARD",
    "SCHEMA_VERSION",
    "AgentCall",
    "AgentRecord",
    "Branch",
    "Completion",
    "Content",
    "Failure",
    "Finish",
    "FlatSegment",
    "Image",
    "Message",
    "Part",
    "Phase",
    "PlayedRecord",
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
    "flatten",
    "line_of",
    "message_of",
    "observed",
    "opening_of",
    "text_of",
    "traceback_of",
    "verdicts",
    "writable",
]
