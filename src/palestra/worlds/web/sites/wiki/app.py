"""The application of the encyclopedia: plain WSGI over one SQLite file. It never writes to it."""

import re
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote

from palestra.worlds.web.sites.wiki.articles import documents_of, mentions, world_of

__all__ = ["application", "prepare", "seed"]

FILE = "wiki.sqlite"
_PER_PAGE = 50
_RESULTS = 20
_KINDS = {"person": "People", "town": "Towns", "firm": "Firms", "work": "Works", "event": "Events"}
_STYLE = (
    "body{font:16px sans-serif;max-width:46em;margin:1em auto;line-height:1.5}"
    "header{border-bottom:1px solid #aaa;margin-bottom:1em}input{width:20em}"
)


def prepare() -> None:
    """Make an empty encyclopedia."""
    with closing(sqlite3.connect(FILE)) as database, database:
        database.execute("CREATE TABLE article (title TEXT PRIMARY KEY, kind TEXT, text TEXT)")


def seed(seed: int) -> None:
    """Write the articles of the world of ``seed``."""
    kinds = world_of(seed).kinds
    rows = [(document.title, kind, document.text) for document, kind in zip(documents_of(seed), kinds, strict=True)]
    with closing(sqlite3.connect(FILE)) as database, database:
        database.executemany("INSERT INTO article VALUES (?, ?, ?)", rows)


def application(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request."""
    path = environ["PATH_INFO"].encode("latin-1").decode(errors="replace")
    asked = {name: values[-1] for name, values in parse_qs(environ["QUERY_STRING"]).items()}
    with closing(sqlite3.connect(f"file:{FILE}?mode=ro", uri=True)) as database:
        if canonical := _own_address(database, path, environ["QUERY_STRING"]):
            start("302 Found", [("Location", canonical), ("Content-Type", "text/plain")])
            return []
        title, content = _content(database, path, asked)
    page = (
        f"<!doctype html><html lang=en><title>{escape(title)}</title><style>{_STYLE}</style><header><a href=/>Main page</a> "
        f'<form action=/search role=search><input type=search name=q aria-label="Search the encyclopedia">'
        f"<button>Search</button></form></header><main><h1>{escape(title)}</h1>{content}</main></html>"
    )
    start("200 OK" if content else "404 Not Found", [("Content-Type", "text/html; charset=utf-8")])
    return [page.encode()]


def _own_address(database: sqlite3.Connection, path: str, query: str) -> str:
    """Return the one address of an article that was asked for by another one; otherwise an empty string.

    A task may ask for an article to be open at the end, and its address is compared.
    """
    title, _, links = path.removeprefix("/wiki/").replace("_", " ").partition("/")
    canonical = f"/wiki/{title.replace(' ', '_')}"
    if not path.startswith("/wiki/") or links or (path == canonical and not query):
        return ""
    row = database.execute("SELECT 1 FROM article WHERE title = ?", (title,)).fetchone()
    return quote(canonical) if row else ""


def _content(database: sqlite3.Connection, path: str, asked: dict[str, str]) -> tuple[str, str]:
    """Return the title and the HTML of a page; empty HTML if there is none."""
    if path == "/":
        return "The invented encyclopedia", _main_page(database)
    if path == "/search":
        return "Search results", _search(database, asked.get("q", ""))
    if path.startswith("/category/") and path[10:] in _KINDS:
        return _KINDS[path[10:]], _category(database, path[10:], asked.get("page", "1"))
    if path.startswith("/wiki/"):
        title, _, links = path[6:].replace("_", " ").partition("/")
        row = database.execute("SELECT text FROM article WHERE title = ?", (title,)).fetchone()
        if row is not None and not links:
            return title, _article(database, title, row[0])
        if row is not None and links == "links":
            return f"Articles that link to {title}", _links_to(database, title)
    return "There is no such page", ""


def _main_page(database: sqlite3.Connection) -> str:
    counts = dict(database.execute("SELECT kind, count(*) FROM article GROUP BY kind"))
    rows = "".join(
        f"<li><a href=/category/{kind}>{name}</a> ({counts.get(kind, 0)} articles)</li>" for kind, name in _KINDS.items()
    )
    return f"<p>Search for an article, or choose a category.</p><ul>{rows}</ul>"


def _titles(titles: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_link(title)}</li>' for title in titles)}</ul>"


def _link(title: str) -> str:
    return f'<a href="/wiki/{quote(title.replace(" ", "_"))}">{escape(title)}</a>'


def _category(database: sqlite3.Connection, kind: str, page: str) -> str:
    titles = [title for (title,) in database.execute("SELECT title FROM article WHERE kind = ? ORDER BY title", (kind,))]
    pages = max(1, -(-len(titles) // _PER_PAGE))
    number = min(max(1, int(page) if page.isascii() and page.isdigit() else 1), pages)
    ways = [
        f'<a href="/category/{kind}?page={other}">{word} page</a>'
        for word, other in (("Previous", number - 1), ("Next", number + 1))
        if 1 <= other <= pages
    ]
    shown = titles[(number - 1) * _PER_PAGE : number * _PER_PAGE]
    return f"<p>Page {number} of {pages}</p>{_titles(shown)}<p>{' '.join(ways)}</p>"


def _search(database: sqlite3.Connection, query: str) -> str:
    words = [word.lower() for word in re.findall(r"\w+", query)][:20]
    scored = []
    for title, text in database.execute("SELECT title, text FROM article"):
        in_title, in_text = (set(re.findall(r"\w+", part.lower())) for part in (title, text))
        score = sum(3 * (word in in_title) + (word in in_text) for word in words)
        if score:
            scored.append((-score, title))
    titles = [title for _, title in sorted(scored)[:_RESULTS]]
    return f"<p>{len(titles)} results for {escape(query)}</p>{_titles(titles)}"


def _article(database: sqlite3.Connection, title: str, text: str) -> str:
    others = [name for (name,) in database.execute("SELECT title FROM article") if name != title and name in text]
    linked = escape(text)
    if others:
        pattern = "|".join(re.escape(escape(name)) for name in sorted(others, key=len, reverse=True))
        names = {escape(name): name for name in others}
        linked = re.sub(rf"\b(?:{pattern})\b", lambda match: _link(names[match[0]]), linked)
    return f'<p>{linked}</p><p><a href="/wiki/{quote(title.replace(" ", "_"))}/links">What links here</a></p>'


def _links_to(database: sqlite3.Connection, title: str) -> str:
    rows = database.execute("SELECT title, text FROM article ORDER BY title")
    linking = [other for other, text in rows if other != title and mentions(text, title)]
    return f"<p>{len(linking)} articles</p>{_titles(linking)}"
