"""The address of a model behind an API: its key, its prices, and what of its answers may be shown.

``policies.chat.Endpoint`` and ``agents.upstream.Upstream`` add how they call it. The key stays in its environment variable: it
is read at each use, and never stored or logged.
"""

import base64
import os
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

import aiohttp
import msgspec

from palestra.errors import UsageError
from palestra.foundation.confidential import HIDDEN, SHORTEST, secrets_of_url
from palestra.foundation.resources.connections import HostLookup

__all__ = ["Address", "TokenPrices"]


class TokenPrices(msgspec.Struct, frozen=True, kw_only=True):
    """What the tokens of a model cost. Written by name only: a price in the place of another number would not be noticed."""

    prompt_price: float = 0.0
    """US dollars per million prompt tokens."""
    completion_price: float = 0.0
    """US dollars per million completion tokens."""

    def dollars(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return what these tokens cost."""
        return (prompt_tokens * self.prompt_price + completion_tokens * self.completion_price) / 1e6


class Address(TokenPrices, frozen=True):
    """The address of a model, its key and its prices. What a subclass adds is written by name too."""

    model: str
    base_url: str
    """The address up to ``/v1``, without the path of a call such as ``/chat/completions``: ``https://api.example/v1``."""
    key_variable: str = "OPENAI_API_KEY"
    """The environment variable that holds the key. The key itself is never stored or logged."""

    @property
    def key(self) -> str:
        """The key, or an empty text."""
        return os.environ.get(self.key_variable, "")

    def check(self) -> None:
        """Raise ``UsageError`` unless the address begins with ``http://`` or ``https://``."""
        if not self.base_url.startswith(("http://", "https://")):
            raise UsageError(f'"{self.base_url}" is not the address of an API: write http:// or https:// before it')

    def without_secrets(self, data: bytes) -> bytes:
        """Return the text of the API without the key and the password of the call: some APIs echo the request."""
        for secret in _as_written([self.key, *secrets_of_url(self.base_url), _basic(self.base_url)]):
            data = data.replace(secret, HIDDEN.encode())
        return data

    def session(self, timeout: float, *, key_headers: Sequence[tuple[str, str]] = ()) -> aiohttp.ClientSession:
        """Return a session for calls with the key.

        Args:
            timeout: Seconds per call.
            key_headers: More headers that carry the key, each with what stands before it.
        """
        headers = {"Content-Type": "application/json"}
        if self.key:
            headers |= {name: before + self.key for name, before in (("Authorization", "Bearer "), *key_headers)}
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=300, resolver=HostLookup()),
            timeout=aiohttp.ClientTimeout(total=timeout, sock_connect=15.0),
            headers=headers,
        )


def _basic(url: str) -> str:
    """User and password of ``url`` as HTTP's basic authentication sends them."""
    userinfo = urlsplit(url).netloc.rpartition("@")[0]
    return base64.b64encode(unquote(userinfo).encode()).decode() if userinfo else ""


def _as_written(secrets: Sequence[str]) -> tuple[bytes, ...]:
    """``secrets`` as they may stand in an answer: plain, and with the slashes that some JSON escapes. The longest first."""
    forms = {form for secret in secrets if len(secret) >= SHORTEST for form in (secret, secret.replace("/", "\\/"))}
    return tuple(form.encode() for form in sorted(forms, key=len, reverse=True))
