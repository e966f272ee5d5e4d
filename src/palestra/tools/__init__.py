"""What an agent may call, and how models write a call.

``forms`` finds calls in a text, ``functions`` makes tools of typed functions. Import the others from their modules, which
load only what that tool needs: ``python`` (code in a box), ``search``, ``mcp``.
"""

from palestra.tools.forms import CallForm, find_calls
from palestra.tools.functions import BadArguments, FunctionTool, tool

__all__ = [
    "BadArguments",
    "CallForm",
    "FunctionTool",
    "find_calls",
    "tool",
]
