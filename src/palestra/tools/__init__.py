"""What an agent may call, and how a call is written.

``calls`` is the text form of a call. Import the rest from its module, which loads only what that tool needs.
"""

from palestra.tools.calls import CallForm, MalformedCall, ParsedCalls, format_call, format_result, parse_calls

__all__ = ["CallForm", "MalformedCall", "ParsedCalls", "format_call", "format_result", "parse_calls"]
