"""The state of one session: its environment, the number of the last call, its answer, and when the client was last heard."""

import asyncio
import contextvars
import secrets
from collections.abc import Callable

from palestra.adapters.ownership import OWNER, Owner
from palestra.core import AsyncEnv
from palestra.serve.host import Offer
from palestra.serve.wire import Verb

__all__ = ["Deliver", "ServerSession"]

Deliver = Callable[[bytes], None]
"""Sends an answer that was not ready at once."""


class ServerSession:
    """One client's environment and the last call on it."""

    __slots__ = (
        "answered",
        "context",
        "deliver",
        "env",
        "id",
        "kept",
        "max_message",
        "offer",
        "owner",
        "playing",
        "reply",
        "request",
        "running",
        "seen",
        "seq",
        "strangers",
        "verb",
    )

    def __init__(self, offer: Offer, owner: bytes, max_message: int) -> None:
        self.id = secrets.token_hex(16)
        self.owner = owner
        self.offer = offer
        self.max_message = max_message
        self.env: AsyncEnv | None = None
        self.strangers = Owner(None)
        """The owner of what the code of the environment starts."""
        self.context = contextvars.copy_context()
        """Where the code of an environment runs that is played in place."""
        self.context.run(OWNER.set, self.strangers)
        self.playing = False
        """True between a reset and the end of its episode."""
        self.seq = 0
        self.verb: Verb | None = None
        self.request = 0
        self.reply = b""
        """The answer to ``seq``; empty while that call runs."""
        self.running: asyncio.Task[None] | None = None
        self.deliver: Deliver | None = None
        self.seen = 0.0
        """Time of the last frame or renewal."""
        self.kept = 0
        """Bytes that count for ``verb`` and ``reply``."""
        self.answered = 0
        """Bytes that counted for the last answer. The next one is likely to need as many."""
