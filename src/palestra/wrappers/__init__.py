"""Wrappers bend an environment, named by their effect. They exist once, on the async side."""

from typing import TYPE_CHECKING, Any

from palestra.wrappers.history import KeepHistory
from palestra.wrappers.limits import TokenLimit, TurnLimit, approximate_tokens
from palestra.wrappers.recording import RecordTrajectory
from palestra.wrappers.rewording import Reword

if TYPE_CHECKING:
    from palestra.wrappers.use_tools import ToolFault, ToolRules, UseTools

__all__ = [
    "KeepHistory",
    "RecordTrajectory",
    "Reword",
    "TokenLimit",
    "ToolFault",
    "ToolRules",
    "TurnLimit",
    "UseTools",
    "approximate_tokens",
]


def __getattr__(name: str) -> Any:
    # Tools come with parsers and schemas; every import of palestra passes here, and few need them.
    if name in ("ToolFault", "ToolRules", "UseTools"):
        from palestra.wrappers import use_tools

        return getattr(use_tools, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
