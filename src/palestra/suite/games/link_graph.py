r"""Articles and the links between them, read from a JSONL file of ``{"title", "text", "links"}``.

A graph is read once per process and never changes, so all episodes share it. Links to the article itself or to titles that the
file does not contain are dropped; titles are compared without case. Articles whose title does not fit into a ``\boxed{}``
(braces, more than 300 characters) are dropped too.
"""

from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from palestra.errors import SchemaError

__all__ = ["LONGEST_TITLE", "LinkGraph", "read_link_graph"]


LONGEST_TITLE = 300


class _Article(msgspec.Struct, frozen=True):
    title: str
    text: str = ""
    links: tuple[str, ...] = ()


class LinkGraph:
    """Articles by number, in the order of the file."""

    def __init__(self, articles: list[_Article]) -> None:
        self.titles = tuple(article.title for article in articles)
        self.texts = tuple(article.text for article in articles)
        self.numbers: Mapping[str, int] = {title.casefold(): number for number, title in enumerate(self.titles)}
        self.links: tuple[tuple[int, ...], ...] = tuple(
            tuple(dict.fromkeys(there for there in map(self.find, article.links) if there not in (None, number)))
            for number, article in enumerate(articles)
        )
        came_from: list[list[int]] = [[] for _ in articles]
        for number, links in enumerate(self.links):
            for there in links:
                came_from[there].append(number)
        self.came_from = tuple(map(tuple, came_from))

    def find(self, title: str) -> int | None:
        """Return the article with this title, if there is one."""
        return self.numbers.get(" ".join(title.split()).casefold())

    def distances_from(self, start: int, most: int) -> dict[int, int]:
        """Return the distance in links of every article that can be reached over at most ``most`` links."""
        return _distances(self.links, start, most)

    def distances_to(self, target: int) -> Mapping[int, int]:
        """Return the distance in links to ``target`` from every article that leads to it."""
        return _distances_to(self, target)

    def __deepcopy__(self, memo: dict[int, Any]) -> "LinkGraph":
        return self


@lru_cache(maxsize=256)
def _distances_to(graph: LinkGraph, target: int) -> Mapping[int, int]:
    return _distances(graph.came_from, target, len(graph.titles))


def _distances(links: tuple[tuple[int, ...], ...], start: int, most: int) -> dict[int, int]:
    found, queue = {start: 0}, deque([start])
    while queue:
        here = queue.popleft()
        if found[here] == most:
            break
        for there in links[here]:
            if there not in found:
                found[there] = found[here] + 1
                queue.append(there)
    return found


def read_link_graph(path: str) -> LinkGraph:
    """Return the graph in the file at ``path``. It is read again only if the file has changed."""
    file = Path(path).expanduser().resolve()
    try:
        changed = file.stat().st_mtime_ns
    except OSError as error:
        raise SchemaError(f"the corpus {file} cannot be read: {error.strerror}") from error
    return _read(file, changed)


@lru_cache(maxsize=8)
def _read(file: Path, changed: int) -> LinkGraph:
    decoder = msgspec.json.Decoder(_Article)
    articles: dict[str, _Article] = {}
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                article = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                raise SchemaError(f"{file}, line {number}: not an article with title, text and links: {error}") from error
            title = " ".join(article.title.split())
            if not title or len(title) > LONGEST_TITLE or "{" in title or "}" in title:
                continue
            articles.setdefault(title.casefold(), _Article(title, article.text, article.links))
    return LinkGraph(list(articles.values()))
