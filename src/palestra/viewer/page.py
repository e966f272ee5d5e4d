"""The page: hand-written HTML, CSS and JavaScript, joined without a build step.

A served page and an exported page are the same. A served page fetches a catalog and single episodes from its server. An
exported page contains all of this data, one block per episode, and parses a block when the reader opens the episode.

A model or a stranger's environment wrote the text of an episode. Three measures keep it text. The data blocks are JSON without
any ``<``. The scripts create text nodes only, also where they render Markdown. The page's Content-Security-Policy names the
hash of the one script that may run, and forbids every request to another host.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib import resources

import msgspec

from palestra.foundation.encoding import encode_json
from palestra.trajectory import Trajectory, writable
from palestra.viewer.about import RunAbout, RunScores, scores_of
from palestra.viewer.summary import Columns, summarise

__all__ = ["Page", "RunPage", "catalog", "export_page", "page", "run_page", "static_page"]

_SCRIPTS = (
    "data.js",
    "text.js",
    "markdown.js",
    "chat.js",
    "tokens.js",
    "calls.js",
    "tables.js",
    "browse.js",
    "training.js",
    "group.js",
    "episode.js",
    "main.js",
)
_STYLES = ("page.css",)
_DATA = "<!-- data -->\n"


class RunPage(msgspec.Struct, frozen=True):
    """What the page knows about a run before it opens an episode."""

    name: str
    columns: Columns
    read: float = 1.0
    """Share of the file that the columns cover: the server reads a large run while the page shows its first episodes."""
    trained: bool = False
    """Whether it has the curves of a training run."""
    about: RunAbout = RunAbout()
    scores: RunScores | None = None
    """``None`` while the run is being read, and for training runs, whose episodes come from many versions of the weights."""


class Page(msgspec.Struct, frozen=True):
    """A page and its Content-Security-Policy."""

    html: str
    security_policy: str


def export_page(trajectories: Iterable[Trajectory], title: str) -> str:
    """Return one self-contained HTML file that shows ``trajectories`` turn by turn and token by token."""
    lines = [encode_json(writable(trajectory)) for trajectory in trajectories]
    return "".join(static_page([run_page(title, lines)], [lines], title=title))


def run_page(name: str, lines: list[bytes]) -> RunPage:
    """Return what a page knows about the episodes in ``lines`` before it opens one."""
    columns = summarise(lines)
    return RunPage(name, columns, scores=scores_of(columns))


def static_page(
    runs: Sequence[RunPage],
    episodes: Sequence[Iterable[bytes]],
    *,
    title: str,
    beside: Mapping[str, bytes] | None = None,
    note: str = "",
) -> Iterator[str]:
    """Yield the pieces of a page that contains ``runs`` and, for each run, all of its ``episodes`` (JSON lines).

    ``beside`` holds what else the page can show: ``metrics-0`` and ``vocabulary-0`` for the first run, as JSON. ``note`` is
    Markdown that stands above the list of runs.
    """
    before, _, after = page(title, served=False).html.partition(_DATA)
    yield before
    yield _data_block("catalog", catalog(title, runs, note))
    for name, json in (beside or {}).items():
        yield _data_block(name, json)
    for run, lines in enumerate(episodes):
        for number, line in enumerate(lines):
            yield _data_block(f"episode-{run}-{number}", line)
    yield after


def page(title: str, *, served: bool) -> Page:
    """Return the page without data. If ``served``, it fetches its data from the server that sent it."""
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
    # One pass, so that a title such as "{{script}}" stays a title.
    html = re.sub(r"\{\{(\w+)\}\}", lambda mark: filling[mark[1]], _text("page.html"))
    return Page(html, policy)


def _data_block(id: str, json: bytes) -> str:
    # In JSON a "<" occurs only inside strings, where its escape means the same. Without it no tag or comment can begin.
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


def catalog(title: str, runs: Sequence[RunPage], note: str = "") -> bytes:
    """Return the JSON that the page reads first."""
    return encode_json({"title": title, "runs": runs, "note": note})
