"""Authentication: bearer tokens of at least 128 bits, compared in constant time.

A server holds digests of its tokens, not the tokens. The digest of the token that a client presents is its *owner*: a session
belongs only to the owner that opened it.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from palestra.errors import UsageError

__all__ = ["HOST_VARIABLE", "TOKEN_VARIABLE", "BearerTokens", "new_token", "read_token_file", "token_for"]

TOKEN_VARIABLE = "PALESTRA_TOKEN"  # noqa: S105 - the name of a variable
"""The environment variable that a client reads if the code passes no token."""
HOST_VARIABLE = "PALESTRA_TOKEN_HOST"
"""The servers that may receive this token: ``HOST:PORT``, or ``HOST`` for every port; separated by commas."""
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

_SHORTEST = 22
"""Fewest characters of a token: 22 of base64 carry 132 bits, 32 of hexadecimal 128."""
_FEWEST_KINDS = 8
"""Fewest different characters of a token; one with fewer is not random."""


def new_token() -> str:
    """Return a new token of 256 random bits."""
    return secrets.token_urlsafe(32)


def read_token_file(path: Path) -> list[str]:
    """Return the tokens in ``path``, one per line. If the file is missing, create it with a new token.

    Raise ``UsageError`` if other users of this machine may read or write it: they could take a token or add their own.
    """
    if not path.exists():
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(new_token() + "\n")
    if path.is_file() and path.stat().st_mode & 0o077:
        raise UsageError(f"other users can read or write {path}. Type: chmod 600 {path}")
    tokens = [line.strip() for line in path.read_text().splitlines() if line.strip()]
    if not tokens:
        raise UsageError(f"{path} holds no token; delete the file, and the next start makes one")
    return tokens


def token_for(url: str) -> str:
    """Return the token of the environment variables if it is meant for the server at ``url``.

    A recipe by another author can name any address, so a token without a host is never sent.
    """
    token, hosts = os.environ.get(TOKEN_VARIABLE), os.environ.get(HOST_VARIABLE, "")
    parts = urlsplit(url)
    host = parts.hostname or ""
    address = f"{f'[{host}]' if ':' in host else host}:{parts.port or _PORTS.get(parts.scheme, 0)}"
    if not token:
        raise UsageError(
            f"{url} needs a token: make(…, token=…), or export {TOKEN_VARIABLE}=$(cat token) {HOST_VARIABLE}={address}"
        )
    allowed = {name.strip().lower() for name in hosts.split(",")}
    if address not in allowed and address.rpartition(":")[0] not in allowed:
        why = f"{HOST_VARIABLE} is {hosts}" if hosts else f"{HOST_VARIABLE} is not set"
        raise UsageError(f"{why}, so {TOKEN_VARIABLE} was not sent to {url}. To send it: export {HOST_VARIABLE}={address}")
    return token


class BearerTokens:
    """The tokens that a server accepts."""

    def __init__(self, tokens: Iterable[str]) -> None:
        given = [tokens] if isinstance(tokens, str) else list(tokens)
        for token in given:
            if len(token) < _SHORTEST or len(set(token)) < _FEWEST_KINDS or not token.isascii() or not token.isprintable():
                raise UsageError(
                    f"a token must carry 128 bits: at least {_SHORTEST} random ASCII characters, got {len(token)} with "
                    f"{len(set(token))} different ones. Leave the token out, and the server makes one."
                )
        if not given:
            raise UsageError("a server needs at least one token")
        self._digests = list(dict.fromkeys(hashlib.sha256(token.encode()).digest() for token in given))

    def __len__(self) -> int:
        return len(self._digests)

    def owner(self, authorizations: Sequence[str]) -> bytes | None:
        """Return the owner of the token in the ``Authorization`` headers; ``None`` unless there is exactly one known token.

        Every token is compared in constant time, even after a match.
        """
        scheme, _, token = (authorizations[0] if len(authorizations) == 1 else "").partition(" ")
        presented = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        owner = None
        for digest in self._digests:
            if hmac.compare_digest(digest, presented):
                owner = digest
        return owner if scheme.lower() == "bearer" else None
