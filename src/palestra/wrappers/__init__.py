"""Wrappers modify an environment, and are named by their effect. They are written once, on the async side.

A wrapper is imported when it is first used: every ``import palestra`` passes here, and few programs need all of them.
"""

from typing import TYPE_CHECKING

from palestra.foundation.imports import lazy_names

if TYPE_CHECKING:
    from palestra.wrappers.attempts import Attempts
    from palestra.wrappers.history import KeepHistory
    from palestra.wrappers.lending import lend, named_tool, named_wrapper
    from palestra.wrappers.limits import TokenLimit, TurnLimit, approximate_tokens
    from palestra.wrappers.recording import RecordTrajectory
    from palestra.wrappers.rewording import Reword
    from palestra.wrappers.use_tools import ToolFault, ToolRules, UseTools

__all__ = [
    "Attempts",
    "KeepHistory",
    "RecordTrajectory",
    "Reword",
    "TokenLimit",
    "ToolFault",
    "ToolRules",
    "TurnLimit",
    "UseTools",
    "approximate_tokens",
    "lend",
    "named_tool",
    "named_wrapper",
]

_HOMES = {
    "Attempts": "attempts",
    "KeepHistory": "history",
    "RecordTrajectory": "recording",
    "Reword": "rewording",
    "TokenLimit": "limits",
    "ToolFault": "use_tools",
    "ToolRules": "use_tools",
    "TurnLimit": "limits",
    "UseTools": "use_tools",
    "approximate_tokens": "limits",
    "lend": "lending",
    "named_tool": "lending",
    "named_wrapper": "lending",
}

__getattr__ = lazy_names(__name__, _HOMES)
