"""What an agent may call, and how a call is written.

``calls`` is the text form of a call, ``functions`` makes tools of typed functions. Import the others from their modules, which
load only what that tool needs: ``python`` (code in a box), ``search``, ``mcp``.
"""

from palestra.tools.calls import CallForm, MalformedCall, ParsedCalls, format_call, format_result, parse_calls
from palestra.tools.functions import BadArguments, FunctionTool, tool

__all__ = [
    "BadArguments",
    "CallForm",
    "FunctionTool",
    "MalformedCall",
    "ParsedCalls",
    "format_call",
    "format_result",
    "parse_calls",
    "tool",
]
