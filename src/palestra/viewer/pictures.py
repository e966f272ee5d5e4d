"""Boards as their environment draws them: the recorded actions are replayed, and ``render()`` is called before each.

Only registered environments without wrappers are replayed; a name in a stranger's file never leads to an import. An environment
that blocks is replayed in a worker process. Pictures stop where the observations differ from the recorded ones.

The HTML that ``render`` returns is not trusted. This module reduces it to text, a few tags, and a few style properties whose
values are plain words and numbers. The page builds elements from these and never receives the HTML.
"""

import asyncio
import re
from html.parser import HTMLParser
from inspect import isawaitable
from typing import Any

from palestra.core import AsyncEnv, Env
from palestra.foundation.encoding import decode_json
from palestra.registry import EnvSpec, build, list_envs
from palestra.trajectory import Trajectory

__all__ = ["Node", "pictures_of", "safe_nodes"]

Node = str | dict[str, Any]
"""Text, or ``{"tag": …, "style": {…}, "children": […]}``."""

MOST_TURNS = 300
LONGEST = 300.0
"""Seconds after which a replay ends with the pictures that it has."""
MOST_NODES = 5000
DEEPEST = 30
_TAGS = frozenset(["div", "span", "p", "b", "i", "table", "tbody", "tr", "td", "th"])
_SILENT = frozenset(["script", "style", "template", "iframe", "object", "svg", "math"])
_STYLE = re.compile(
    "background(-color)?|border(-radius)?|box-shadow|color|display|font(-size|-weight)?|gap|(line-)?height|margin|(min-)?width|"
    "opacity|padding|text-align|vertical-align|white-space"
)
_VALUE = re.compile(r"[#\w.,%/ ()-]{1,80}")


def pictures_of(line: bytes) -> list[list[Node]] | None:
    """Return the pictures before each turn and after the last, as far as the replay succeeds; ``None`` without any."""
    trajectory = decode_json(line, Trajectory)
    spec = next((candidate for candidate in list_envs(trajectory.task.env) if candidate.id == trajectory.task.env), None)
    if spec is None or trajectory.player or not trajectory.turns or not _draws(spec):
        return None
    return asyncio.run(_pictures(spec, trajectory))


def _draws(spec: EnvSpec) -> bool:
    """Return whether the class of an environment has a ``render()``, and nothing is around it or missing."""
    if spec.wrappers or spec.missing():
        return False
    factory = spec.factory()
    return isinstance(factory, type) and issubclass(factory, Env | AsyncEnv) and hasattr(factory, "render")


async def _pictures(spec: EnvSpec, trajectory: Trajectory) -> list[list[Node]] | None:
    pictures: list[list[Node]] = []
    try:
        env = build(spec, {})
        try:
            async with asyncio.timeout(LONGEST):
                await _replay(env, trajectory, pictures)
        finally:
            await env.close()
    except TimeoutError:
        return pictures
    except Exception:  # noqa: BLE001 - its code fails, or its data is not here: shown without pictures
        return None
    return pictures


async def _replay(env: AsyncEnv, trajectory: Trajectory, pictures: list[list[Node]]) -> None:
    shown, _ = await env.reset(task=trajectory.task)
    for turn in trajectory.turns[:MOST_TURNS]:
        if shown != turn.observation:
            return
        pictures.append(await _drawn(env))
        shown, _, terminated, truncated, _ = await env.step(turn.action)
        if terminated or truncated:
            break
    if shown == trajectory.final_observation and len(pictures) == len(trajectory.turns):
        pictures.append(await _drawn(env))


async def _drawn(env: AsyncEnv) -> list[Node]:
    drawn: Any = env.unwrapped
    html = drawn.render()
    return safe_nodes(await html if isawaitable(html) else html)  # a worker process answers later


def safe_nodes(html: str) -> list[Node]:
    """Return the parts of ``html`` that the page may show."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    return parser.root


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: list[Node] = []
        self._open: list[tuple[str, list[Node]]] = []
        self._silent = 0
        self._count = 0

    @property
    def _inside(self) -> list[Node]:
        return self._open[-1][1] if self._open else self.root

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent += 1
        elif tag in _TAGS and not self._silent and self._count < MOST_NODES and len(self._open) < DEEPEST:
            self._count += 1
            children: list[Node] = []
            style = next((value for name, value in attrs if name == "style" and value), "")
            self._inside.append({"tag": tag, "style": _style(style), "children": children})
            self._open.append((tag, children))

    def handle_endtag(self, tag: str) -> None:
        if tag in _SILENT:
            self._silent = max(0, self._silent - 1)
        elif any(name == tag for name, _ in self._open):
            while self._open.pop()[0] != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self._silent and self._count < MOST_NODES:
            self._count += 1
            self._inside.append(data)


def _style(text: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in text.split(";"))
    properties = {name.strip().lower(): value.strip() for name, _, value in pairs}
    return {
        name: value
        for name, value in properties.items()
        if _STYLE.fullmatch(name) and _VALUE.fullmatch(value) and "url" not in value.lower() and "var" not in value.lower()
    }
