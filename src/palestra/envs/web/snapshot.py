"""What the agent sees of a page: its accessibility tree, one element per line.

Playwright writes the tree as YAML. ``read_snapshot`` makes it a list of elements, and ``element_lines`` writes them for the
agent. Every text of the page is quoted as JSON, line breaks included, so a page cannot write a line of its own: no text can
look like an element, an error or the end of the episode.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from palestra.errors import EnvError

__all__ = ["Element", "Ids", "cleaned", "element_lines", "read_snapshot"]

_KEY = re.compile(r'^(?P<role>\S+)(?: (?P<name>"(?:[^"\\]|\\.)*"))?(?P<marks>(?: \[[^\]]*\])*)$', re.DOTALL)
_MARK = re.compile(r"\[([^\]]*)\]")
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
"""They end a line in YAML: with them, a page could write lines of its own."""
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_PLAIN = frozenset({"generic", "none", "presentation"})
_FIELDS = frozenset({"textbox", "searchbox"})
_HIDDEN_MARKS = frozenset({"ref", "box", "cursor"})


class Element(NamedTuple):
    """One element of the tree."""

    depth: int
    role: str
    name: str = ""
    ref: str = ""
    """What actions call it: ``e5``. Empty if it cannot be acted on."""
    value: str = ""
    """Its text, or the content of a field."""
    marks: tuple[str, ...] = ()
    """States such as ``checked`` and ``level=2``."""
    url: str = ""
    clickable: bool = False
    box: tuple[float, float, float, float] | None = None
    """Left, top, width and height in the window, in pixels."""


class Ids:
    """The ids of elements in one episode: ``e1``, ``e2``, … in the order in which the agent has seen them.

    Playwright's own ids also count what the browser has shown before this episode, so they are not the same twice.
    """

    def __init__(self) -> None:
        self._shown: dict[str, str] = {}
        self._own: dict[str, str] = {}
        self._last = 0

    def name(self, elements: Sequence[Element]) -> list[Element]:
        """Return ``elements`` with the ids of the episode."""
        for one in elements:
            if one.ref and one.ref not in self._shown:
                self._last += 1
                self._shown[one.ref] = name = f"e{self._last}"
                self._own[name] = one.ref
        return [one._replace(ref=self._shown.get(one.ref, "")) for one in elements]

    def copied(self, named: Sequence[Element], elements: Sequence[Element]) -> "Ids":
        """Return ids for a copy of the page, in which ``elements`` have the names of ``named``, one for one."""
        made = Ids()
        made._last = self._last
        for one, other in zip(named, elements, strict=True):
            if one.ref and other.ref:
                made._shown[other.ref] = one.ref
                made._own[one.ref] = other.ref
        return made

    def own(self, name: str) -> str:
        """Return Playwright's id of the element that the agent calls ``name``; empty if it has seen none."""
        return self._own.get(name, "")


def read_snapshot(text: str) -> list[Element]:
    """Return the elements of a snapshot of Playwright (``mode="ai"``), parents before children."""
    import yaml

    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    tree = yaml.load(cleaned(text), loader) if text.strip() else []
    return list(_elements(tree, 0))


def cleaned(text: str) -> str:
    """Return ``text`` without the characters that YAML does not allow, or takes for the end of a line."""
    return _UNREADABLE.sub("\ufffd", _LINE_ENDS.sub(" ", text))


def _elements(nodes: Sequence[Any], depth: int) -> Iterator[Element]:
    for node in nodes:
        key, inside = next(iter(node.items())) if isinstance(node, dict) else (node, "")
        children = inside if isinstance(inside, list) else []
        value = "" if isinstance(inside, list) else inside
        element = _element(key, value, children, depth)
        inner = [child for child in children if not _is_property(child)]
        if element.role in _FIELDS and inner and all(isinstance(child, dict) and "text" in child for child in inner):
            element, inner = element._replace(value=" ".join(child["text"] for child in inner)), []  # not the placeholder
        shown = _worth_showing(element)
        if shown:
            yield element
        yield from _elements(inner, depth + shown)


def _is_property(node: Any) -> bool:
    return isinstance(node, dict) and next(iter(node)).startswith("/")


def _element(key: str, value: str, children: Sequence[Any], depth: int) -> Element:
    found = _KEY.match(key)
    if found is None:
        raise EnvError(f"the browser's snapshot has a line that cannot be read: {key[:200]!r}")
    marks = dict(_pair(mark) for mark in _MARK.findall(found["marks"]))
    properties = {next(iter(child)): next(iter(child.values())) for child in children if _is_property(child)}
    box = tuple(float(number) for number in marks["box"].split(",")) if "box" in marks else None
    return Element(
        depth,
        found["role"],
        json.loads(found["name"]) if found["name"] else "",
        marks.get("ref", ""),
        value or properties.get("/placeholder", ""),
        tuple(f"{name}={given}" if given else name for name, given in marks.items() if name not in _HIDDEN_MARKS),
        properties.get("/url", ""),
        "cursor" in marks,
        box if box is None or len(box) == 4 else None,
    )


def _pair(mark: str) -> tuple[str, str]:
    name, _, value = mark.partition("=")
    return name, value


def _worth_showing(element: Element) -> bool:
    """A container without a name or text only holds others."""
    return bool(element.role not in _PLAIN or element.name or element.value or element.clickable)


def element_lines(elements: Sequence[Element], *, places: bool = False) -> list[str]:
    """Return one line per element. With ``places``, a line ends with the middle of the element in pixels."""
    return [_line(element, places) for element in elements]


def _line(element: Element, places: bool) -> str:
    words = [f"{'  ' * element.depth}[{element.ref}]" if element.ref else f"{'  ' * element.depth}-"]
    words.append("area" if element.role in _PLAIN else element.role)
    if element.name:
        words.append(json.dumps(element.name, ensure_ascii=False))
    if element.value:
        words.append(f"= {json.dumps(element.value, ensure_ascii=False)}")
    words += element.marks
    if element.url:
        words.append(f"to {json.dumps(element.url, ensure_ascii=False)}")
    if places and element.box is not None:
        left, top, wide, high = element.box
        words.append(f"at ({round(left + wide / 2)}, {round(top + high / 2)})")
    return " ".join(words)
