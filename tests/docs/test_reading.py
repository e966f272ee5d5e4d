"""No sentence that a fresh reader had to read twice comes back to its page."""

import re
from itertools import pairwise

from tests.docs.test_pages import ROOT


def entries() -> list[tuple[str, str]]:
    """(page, sentence that was rewritten), from ``reading.md``."""
    found = []
    page = ""
    for line in (ROOT / "tests" / "docs" / "reading.md").read_text().splitlines():
        if line.startswith("## "):
            page = line.removeprefix("## ")
        elif line.startswith("- was: "):
            found.append((page, line.removeprefix("- was: ")))
    return found


def test_rewritten_sentences_stay_away() -> None:
    texts = {page: re.sub(r"\s+", " ", (ROOT / page).read_text()) for page in {page for page, _ in entries()}}
    back = [(page, sentence) for page, sentence in entries() if len(sentence) > 30 and sentence in texts[page]]
    assert not back


def test_every_entry_has_a_rewrite() -> None:
    lines = (ROOT / "tests" / "docs" / "reading.md").read_text().splitlines()
    for line, after in pairwise(lines):
        if line.startswith("- was: "):
            assert re.match(r"  now: \S", after), line
