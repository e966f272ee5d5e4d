"""Keep secrets (keys, tokens, passwords) out of records and child processes.

``mask`` is for text that is recorded: the message and traceback of every failure pass through it. It hides the values of
environment variables whose names mark them as secret, and everything in a text that looks like a secret: user and password of
an address, values of revealing query parameters and headers, keys of well-known forms. ``mask_url`` is for one address that
the user typed; it hides every query value. ``worker_variables`` returns what a worker process inherits.
"""

import os
import re
from collections.abc import Callable, Iterable
from functools import cache
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

__all__ = ["HIDDEN", "SHORTEST", "mask", "mask_end", "mask_start", "mask_url", "secrets_of_url", "worker_variables"]

HIDDEN = "***"
"""Replaces a secret."""

SHORTEST = 6
"""Shorter values are not hidden: hiding every "a" would destroy the text and protect nothing."""

_SECRET_NAME = re.compile(
    r"key|token|secret|passw|pwd|credential|auth|cookie|signature|passphrase|webhook|(?:^|_)(?:pass|pat|pin|(?:user)?pw)(?:_|$)",
    re.IGNORECASE,
)

_PLACE_NAME = re.compile(r"_(?:host|file|path|dir|sock)$|^(?:old)?pwd$", re.IGNORECASE)
"""Names whose value is a place and not a secret. ``PALESTRA_TOKEN_HOST`` is an address, ``PWD`` the shell's working folder."""

_VALUE = r"[^\s'\",;&}\])\\]"
"""A character of a secret that a text writes beside its name."""
_NUMBER = rf"(?!\d{{1,19}}(?!{_VALUE}))"
"""Not a plain number: the id of a token, a count, a seed."""
_DIGIT = rf"(?={_VALUE}{{0,64}}\d)"
"""Secrets hold digits; a word of prose or code after "token:" holds none."""
_NAMED = r"(?:secret|credentials?|(?:api|access|private|signing|secret)[-_ ]?key|webhook(?:[-_]url)?)"
_PASSWORD = r"(?:pass(?:word|wd|phrase)|pwd)"  # noqa: S105 - a pattern

_SHAPES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)(?:(?!-----END )[\s\S])*(?:-----END [A-Z0-9 ]{0,60}-----)?",
        rf"\1{HIDDEN}",
    ),
    (r"(:\\?/\\?/)[^\s/?#\"'<>]+@", rf"\1{HIDDEN}@"),  # up to the last @: a password may contain one
    (
        r"([?&;#](?=[\w.-]*?(?:key|token|secret|passw|pwd|credential|auth|sig|code))[\w.-]+=)[^&;#\s\"'<>\\]+",
        rf"\1{HIDDEN}",
    ),
    (r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]+", rf"\1{HIDDEN}"),
    (r"((?:set-)?cookie2?['\"]?\s{0,8}[:=]\s{0,8}['\"]?)(?=[\w.-]{1,64}=)[^'\"\r\n]+", rf"\1{HIDDEN}"),
    (
        r"((?:proxy-)?authorization['\"]?\s{0,8}[:=]\s{0,8}['\"]?(?:digest|hawk|aws4-hmac-sha256|oauth)[ \t]{1,8})[^\r\n]+",
        rf"\1{HIDDEN}",
    ),
    (
        rf"((?:proxy-)?authorization['\"]?\s{{0,8}}[:=]\s{{0,8}}['\"]?"
        rf"(?:basic|bearer|token|negotiate|ntlm|apikey|key)[ \t]{{1,8}}){_VALUE}+",
        rf"\1{HIDDEN}",
    ),
    (
        rf"((?:proxy-)?authorization['\"]?\s{{0,8}}[:=]\s{{0,8}}['\"]?[a-z][\w-]{{0,30}}[ \t]{{1,8}}){_DIGIT}{_VALUE}{{6,}}",
        rf"\1{HIDDEN}",
    ),
    (r"\b((?:bearer|basic)(?:\s{0,8}:)?\s+)[\w.~+/=-]{6,}", rf"\1{HIDDEN}"),
    (
        r"((?:authorization|api[-_]?key|x-[\w-]{0,64}(?:key|token)|cookie)['\"]?\s*[:=]\s*['\"]?)"
        r"(?!bearer|basic|[\w-]{1,32}[ \t]{1,8}\*\*\*)[^\s'\",;&}\]]{6,}",
        rf"\1{HIDDEN}",
    ),
    (rf"({_PASSWORD}=){_NUMBER}{_VALUE}{{6,}}", rf"\1{HIDDEN}"),
    (rf"((?:{_PASSWORD}|{_NAMED})['\"]?\s{{0,8}}[:=]\s{{0,8}}['\"]){_NUMBER}{_VALUE}{{6,}}", rf"\1{HIDDEN}"),
    (rf"((?:{_PASSWORD}|{_NAMED}|token)['\"]?\s{{0,8}}[:=]\s{{0,8}}['\"]?){_NUMBER}{_DIGIT}{_VALUE}{{6,}}", rf"\1{HIDDEN}"),
    (
        rf"(?-i:((?<![A-Z0-9_])(?=[A-Z0-9_]{{0,64}}(?:SECRET|TOKEN|PASSWORD|PASSWD|KEY|AUTH|WEBHOOK"
        rf"|(?<![A-Z0-9])(?:PASS|PAT|PIN|PW))(?:_[A-Z0-9_]{{0,16}})?=)"
        rf"[A-Z0-9_]{{1,80}}=)){_NUMBER}{_DIGIT}{_VALUE}{{6,}}",
        rf"\1{HIDDEN}",
    ),
    (
        r"\b(?:sk-[\w-]{16,}|gh[oprsu]_\w{20,}|hf_\w{20,}|xox[abeprs](?:\.xox[abeprs])?-[\w-]{10,}|a[ks]ia[0-9a-z]{16}|aiza[\w-]{30,}"
        r"|github_pat_\w{20,}|gl(?:pat|dt|rt|cbt)-[\w-]{16,}|gsk_\w{20,}|nvapi-[\w-]{20,}|pypi-[\w-]{16,}|r8_\w{20,}"
        r"|dapi[0-9a-f]{32}|dop_v1_\w{20,}|npm_\w{30,}|dckr_pat_[\w-]{16,}|[rsp]k_(?:live|test)_\w{7,}|whsec_\w{16,}"
        r"|ya29\.[\w-]{16,}|(?-i:SG)\.[\w-]{10,128}\.[\w-]{10,})",
        HIDDEN,
    ),
    (r"\beyj[\w-]{8,}(\.[\w-]{8,}\.[\w-]*)?", lambda match: HIDDEN if match[1] else match[0]),
)
"""Patterns of secrets in any text → replacement: addresses, query strings, headers, keys, web tokens.

Masking must be linear in the text, which a hostile server may have written. So an unbounded repetition is allowed only where
no second match can start inside it; every other repetition is bounded.
"""

_COMMON = {
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TZ",
    "TMPDIR",
    "TEMP",
    "TMP",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "LD_LIBRARY_PATH",
    "LD_PRELOAD",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "CUDA_VISIBLE_DEVICES",
}
_COMMON_PREFIXES = ("LC_", "PYTHON", "XDG_", "OMP_", "MKL_", "OPENBLAS_", "TOKENIZERS_", "HF_", "PALESTRA_", "COVERAGE_")


def mask(text: str) -> str:
    """Return ``text`` without secrets."""
    return _mask_shapes(_mask_values(text))


def mask_start(text: str, longest: int) -> str:
    """Return the first ``longest`` characters of ``text`` without secrets, and without the first part of one.

    It masks twice as many characters. If ``text`` is longer than that, it then drops the last ``longest`` of them: a secret
    that was cut in two, and therefore not recognized, can only be there.
    """
    unnamed = _mask_values(text)
    masked = _mask_shapes(unnamed[: 2 * longest])
    return (masked if len(unnamed) <= 2 * longest else masked[:-longest])[:longest]


def mask_end(text: str, longest: int) -> str:
    """Return the last ``longest`` characters of ``text`` without secrets: ``mask_start`` from the other end."""
    unnamed = _mask_values(text)
    masked = _mask_shapes(unnamed[-2 * longest :])
    return (masked if len(unnamed) <= 2 * longest else masked[longest:])[-longest:]


def _mask_values(text: str) -> str:
    for name, value in os.environ.items():
        if len(value) >= SHORTEST and value in text and _is_secret(name):
            text = text.replace(value, HIDDEN)
    return text


def _mask_shapes(text: str) -> str:
    for pattern, replacement in _patterns():
        text = pattern.sub(replacement, text)
    return text


def _is_secret(name: str) -> bool:
    """Whether the variable ``name`` holds a secret."""
    return _SECRET_NAME.search(name) is not None and _PLACE_NAME.search(name) is None


@cache
def _patterns() -> tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]:
    return tuple((re.compile(shape, re.IGNORECASE), replacement) for shape, replacement in _SHAPES)


def mask_url(url: str) -> str:
    """Return ``url`` without user, password and query values; for text that is not an address, return ``mask(url)``."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return mask(url)
    if not parts.netloc:
        return mask(url)
    host = parts.netloc.rpartition("@")[2]
    query = urlencode([(name, HIDDEN) for name, _ in parse_qsl(parts.query, keep_blank_values=True)], safe="*")
    netloc = f"{HIDDEN}@{host}" if "@" in parts.netloc else host
    return parts._replace(netloc=netloc, query=query).geturl()


def secrets_of_url(url: str) -> list[str]:
    """Return what ``mask_url`` hides, both as written in the address and decoded."""
    parts = urlsplit(url)
    userinfo = parts.netloc.rpartition("@")[0]
    secrets = [*userinfo.split(":", 1), *(value for _, value in parse_qsl(parts.query))]
    return [form for secret in secrets for form in _forms(secret) if len(form) >= SHORTEST]


def _forms(secret: str) -> Iterable[str]:
    return dict.fromkeys((secret, unquote(secret), quote(secret, safe="")))


def worker_variables() -> dict[str, str]:
    """Return the environment of a worker process: what programs need to run, without variables whose names mark a secret."""
    return {
        name: value
        for name, value in os.environ.items()
        if (name in _COMMON or name.startswith(_COMMON_PREFIXES)) and not _is_secret(name)
    }
