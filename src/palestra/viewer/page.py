"""The page: hand-written HTML, CSS and JavaScript, put together without a build step.

One page serves both ways of looking. Served, it fetches a catalog and single episodes from the process that serves it.
Exported, everything it would fetch is inside the file, one data block per episode, parsed when it is opened.

What an episode holds was written by a model or by a stranger's environment. Three walls keep it text: data blocks are JSON in
which no ``<`` is left, the scripts only ever set ``textContent``, and the page's Content-Security-Policy runs nothing but the
scripts whose hashes it names and loads nothing from anywhere.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources

import msgspec

from palestra.encoding import encode_json
from palestra.trajectory import Trajectory, writable
from palestra.viewer.summary import Columns, summarise

__all__ = ["Page", "RunPage", "catalog", "export_page", "page", "static_page"]

_SCRIPTS = ("data.js", "text.js", "chat.js", "tokens.js", "browse.js", "training.js", "group.js", "main.js")
_STYLES = ("page.css",)
_DATA = "<!-- data -->\n"


class RunPage(msgspec.Struct, frozen=True):
    """What the page is told of a run before any episode is opened."""

    name: str
    columns: Columns
    read: float = 1.0
    """Share of the file that the columns cover: a large run is read while its first episodes are shown."""
    trained: bool = False
    """Whether it has the curves of a training run."""


class Page(msgspec.Struct, frozen=True):
    """A page and the policy that the browser must hold it to."""

    html: str
    security_policy: str


def export_page(trajectories: Iterable[Trajectory], title: str) -> str:
    """One self-contained HTML file in which every one of ``trajectories`` can be read, turn by turn and token by token."""
    lines = [encode_json(writable(trajectory)) for trajectory in trajectories]
    return "".join(static_page([RunPage(title, summarise(lines))], [lines], title=title))


def static_page(
    runs: Sequence[RunPage], episodes: Sequence[Iterable[bytes]], *, title: str, beside: Mapping[str, bytes] | None = None
) -> Iterator[str]:
    """The pieces of a page with ``runs`` and, for each, all of its ``episodes`` (JSON lines) inside.

    ``beside`` is what else the page may ask for: ``metrics-0`` and ``vocabulary-0`` for the first run, as JSON.
    """
    before, _, after = page(title, served=False).html.partition(_DATA)
    yield before
    yield _data_block("catalog", catalog(title, runs))
    for name, json in (beside or {}).items():
        yield _data_block(name, json)
    for run, lines in enumerate(episodes):
        for number, line in enumerate(lines):
            yield _data_block(f"episode-{run}-{number}", line)
    yield after


def page(title: str, *, served: bool) -> Page:
    """The page without data. If ``served``, it asks whoever sent it."""
    style, script = _joined(_STYLES), _joined(_SCRIPTS)
    policy = "; ".join(
        [
            "default-src 'none'",
            f"script-src '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data:",
            "connect-src 'self'" if served else "connect-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )
    filling = {"policy": escape(policy), "title": escape(title), "style": style, "script": script}
    # One pass, so that a title which looks like a mark stays a title.
    html = re.sub(r"\{\{(\w+)\}\}", lambda mark: filling[mark[1]], _text("page.html"))
    return Page(html, policy)


def _data_block(id: str, json: bytes) -> str:
    # In JSON a "<" can only stand inside a string, where its escape means the same. Without it no tag or comment can begin.
    inert = json.decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="{id}">{inert}</script>\n'


def _hash(source: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()


@cache
def _joined(names: tuple[str, ...]) -> str:
    return "\n" + "\n".join(_text(name) for name in names)


@cache
def _text(name: str) -> str:
    return resources.files(__package__).joinpath("static", name).read_text(encoding="utf-8")


def catalog(title: str, runs: Sequence[RunPage]) -> bytes:
    """What the page reads first."""
    return encode_json({"title": title, "runs": runs})
