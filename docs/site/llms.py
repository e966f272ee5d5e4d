"""``llms.txt``, a list of the pages for coding agents, and ``llms-full.txt``, their text in one file."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LEFT_OUT = ("api/", "files/", "gallery.md", "contents.md", "changelog.md")
"""Pages whose text is not in ``llms-full.txt``: they are generated, or lists of others."""


def leaves(nav: Any, section: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield section, title and file of every page of the navigation."""
    for one in nav:
        for title, inside in one.items():
            if isinstance(inside, str):
                yield section, title, inside
            else:
                yield from leaves(inside, f"{section} / {title}".removeprefix(" / "))


def summary(text: str) -> str:
    """Return the first sentence of a page."""
    prose = [part for part in text.split("\n\n") if part.strip() and part.lstrip()[0].isalpha()]
    words = " ".join(re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", prose[0]).split()) if prose else ""
    return re.split(r"(?<=[.:])\s", words)[0][:200].rstrip(":")


def write(put: Callable[[str, str], None], folder: Path, nav: Any) -> None:
    """Write both files."""
    lines = [
        "# Palestra",
        "",
        "> A gym and a trainer for LLM agents, in Python.",
        "",
        "The whole text is in [llms-full.txt](llms-full.txt).",
        "",
    ]
    whole = []
    current = ""
    for section, title, file in leaves(nav):
        text = (folder / file).read_text()
        if section != current:
            lines += ["", f"## {section}", ""]
            current = section
        said = summary(text)
        lines.append(f"- [{title}]({file.removesuffix('.md')}.html)" + (f": {said}" if said else ""))
        if not file.startswith(LEFT_OUT):
            whole.append(f"<!-- {file} -->\n\n{text.strip()}\n")
    put("llms.txt", "\n".join(lines) + "\n")
    put("llms-full.txt", "\n\n".join(whole))
