"""The limits of a gateway: how large and how slow requests may be, and what the key of one episode may make it keep.

Whatever a request makes the gateway keep is counted in bytes, for its episode and for all episodes together: its body while it
arrives and is answered, the messages that are read from it, their places in the graph of conversations, the prompt, the reply,
and answers that a repeated request gets again. An object counts with what Python takes for it, not only with its text. A
request that would exceed a limit is refused with a sentence that names the limit, and nothing of it is kept.
"""

import msgspec

__all__ = ["GatewayLimits"]


class GatewayLimits(msgspec.Struct, frozen=True):
    """Limits against clients that send too much or too slowly."""

    body: int = 4 * 2**20
    """Bytes of a request."""
    read_seconds: float = 30.0
    """Seconds for a request to arrive."""
    write_seconds: float = 60.0
    """Seconds for a client to take a piece of an answer."""
    ping_seconds: float = 10.0
    """Seconds between two events that keep a stream open while the model writes."""
    pending: int = 64
    """Requests of one episode at the same time, those included whose client went away while the model writes."""
    values: int = 50_000
    """Arrays, objects and commas of a request's JSON."""
    messages: int = 4096
    """Messages of a conversation, and tool calls of a message."""
    tools: int = 2**18
    """Bytes of a request's list of tools."""
    calls: int = 10_000
    """Sampled replies of one episode."""
    memory: int = 128 * 2**20
    """Bytes that the requests of one episode may make the gateway keep."""
    total_memory: int = 4 * 2**30
    """Bytes that the requests of all episodes together may make the gateway keep."""
    connections: int = 10_000
    """Open connections. For a new one, the gateway closes the oldest that has no request under way."""
    head_seconds: float = 60.0
    """Seconds for the head of a connection's first request to arrive."""
