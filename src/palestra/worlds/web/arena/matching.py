"""How WebArena compares answers, addresses and contents of pages. These functions know no browser.

Texts are compared without surrounding spaces, one pair of quotes, and capitals.
"""

import re
from collections.abc import Iterable
from urllib.parse import parse_qs, urlsplit

__all__ = ["bare", "equal", "has_word", "included", "same_address"]

_SPLIT = r"\s;@#$%&*?!\"()\[\]{}<>“”„«»‘’`\u2012-\u2015"
"""Characters that end a word wherever they are."""
_CLOSING = r"[\])}>\"'»”’ ]*"


def bare(text: str) -> str:
    """Return a text without surrounding spaces, one pair of quotes, and capitals."""
    text = text.strip()
    quoted = text[:1] in ("'", '"') and text.endswith(text[:1])
    return (text[1:-1] if quoted else text).lower()


def equal(wanted: str, given: str) -> bool:
    """Return whether a text is the wanted one."""
    return bare(given) == bare(wanted)


def included(wanted: str, given: str, *, alone: bool = False) -> bool:
    """Return whether a text contains the wanted one.

    With ``alone``, a wanted text of one character must be a word: an answer of 10 does not contain 0.
    """
    wanted, given = bare(wanted), bare(given)
    return has_word(wanted, given) if alone and len(wanted) == 1 else wanted in given


def has_word(letter: str, text: str) -> bool:
    """Return whether one character is a word of a text, as the tokenizer of the Penn Treebank splits it.

    Brackets, quotes and most marks end a word. A comma or colon does so unless a digit follows, and a period at the end of a
    sentence: ``3`` is no word of ``3.5``, ``2,3`` or ``3:30``. A sentence ends wherever a space follows a period.
    """
    before = rf"(?:(?<![^{_SPLIT}])|(?<=[:,])(?!\d)|(?<=')(?<![^{_SPLIT}]')|(?<=--)|(?<=\.\.))"
    after = rf"(?=[{_SPLIT}]|[:,](?!\d)|--|\.\.|\.{_CLOSING}(?:\s|$)|'s?(?![^{_SPLIT}.,:-])|$)"
    return re.search(before + re.escape(letter) + after, text) is not None


def same_address(wanted: Iterable[str], address: str) -> bool:
    """Return whether an address has the host and path of a wanted one, and a wanted value for each part of their queries."""
    here = urlsplit(address.rstrip("/"))
    asked = parse_qs(here.query)
    path, queries = here.netloc + here.path, dict[str, set[str]]()
    matches = False
    for wanted_address in wanted:
        parts = urlsplit(wanted_address.rstrip("/"))
        matches = matches or parts.netloc + parts.path in path
        for name, values in parse_qs(parts.query).items():
            queries.setdefault(name, set()).update(values)
    return matches and all(values & set(asked.get(name, ())) for name, values in queries.items())
