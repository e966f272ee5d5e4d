"""Who may speak: bearer tokens of at least 128 bits, compared in constant time.

A server holds digests of its tokens, not the tokens. Which of them a client presented is its *owner*: a session belongs to the
owner that opened it, and to nobody else.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable
from pathlib import Path

from palestra.errors import UsageError

__all__ = ["TOKEN_VARIABLE", "Tokens", "new_token", "read_token_file"]

TOKEN_VARIABLE = "PALESTRA_TOKEN"
"""The environment variable a client reads where no token is given in code."""

_SHORTEST = 22
"""Characters: 22 of base64 carry 132 bits, 32 of hexadecimal 128."""
_FEWEST_KINDS = 8
"""A token with fewer different characters was not drawn at random."""


def new_token() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def read_token_file(path: Path) -> list[str]:
    """The tokens in ``path``, one a line; a missing file is created, readable by its owner only, with a new one."""
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new_token() + "\n")
    tokens = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not tokens:
        raise UsageError(f"{path} holds no token; delete it to have one made")
    return tokens


class Tokens:
    """The tokens a server accepts."""

    def __init__(self, tokens: Iterable[str]) -> None:
        given = [tokens] if isinstance(tokens, str) else list(tokens)
        for token in given:
            if len(token) < _SHORTEST or len(set(token)) < _FEWEST_KINDS or not token.isascii() or not token.isprintable():
                raise UsageError(
                    f"a token must carry 128 bits: at least {_SHORTEST} random ASCII characters, got {len(token)} with "
                    f"{len(set(token))} different ones. Leave it out to have one made."
                )
        if not given:
            raise UsageError("a server needs at least one token")
        self._digests = [hashlib.sha256(token.encode()).digest() for token in given]

    def owner(self, authorization: str | None) -> bytes | None:
        """Who presents this ``Authorization`` header; ``None`` if nobody we know.

        Every token is compared, whether or not one has matched, and each in constant time.
        """
        scheme, _, token = (authorization or "").partition(" ")
        presented = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        found = None
        for digest in self._digests:
            if hmac.compare_digest(digest, presented):
                found = digest
        return found if scheme.lower() == "bearer" else None
