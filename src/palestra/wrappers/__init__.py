"""Wrappers bend an environment, named by their effect. They exist once, on the async side."""

from palestra.wrappers.history import KeepHistory
from palestra.wrappers.limits import TokenLimit, TurnLimit, approximate_tokens
from palestra.wrappers.recording import RecordTrajectory
from palestra.wrappers.use_tools import ToolFault, ToolRules, UseTools

__all__ = [
    "KeepHistory",
    "RecordTrajectory",
    "TokenLimit",
    "ToolFault",
    "ToolRules",
    "TurnLimit",
    "UseTools",
    "approximate_tokens",
]
