"""What the agent sees of a page: its accessibility tree, one element per line.

Playwright writes the tree as YAML. ``read_snapshot`` makes it a list of elements, and ``element_lines`` writes them for the
agent. Every text of the page is quoted as JSON, line breaks included, so a page cannot write a line of its own: no text can
look like an element, an error or the end of the episode.
"""

import json
import re
from collections.abc import Sequence
from typing import NamedTuple

from palestra.errors import EnvError

__all__ = ["Element", "Ids", "cleaned", "element_lines", "in_window", "read_snapshot", "usable"]

_KEY = re.compile(r'^(?P<role>\S+)(?: (?P<name>"(?:[^"\\]|\\.)*"))?(?P<marks>(?: \[[^\]]*\])*)$', re.DOTALL)
_QUOTED = re.compile(r"- '((?:[^']|'')*)'")
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|(.))")
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LINE_ENDS = re.compile("[\x85\u2028\u2029]")
"""They end a line for many readers: with them, a page could write lines of its own."""
_UNREADABLE = re.compile("[^\t\n\r\x20-\x7e\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_PLAIN = frozenset({"generic", "none", "presentation"})
_FIELDS = frozenset({"textbox", "searchbox"})
_USABLE = _FIELDS | {
    *("button", "checkbox", "combobox", "link", "listbox", "menuitem", "menuitemcheckbox", "menuitemradio", "option", "radio"),
    *("slider", "spinbutton", "switch", "tab", "treeitem"),
}


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
    """States such as ``checked``, ``focused`` and ``level=2``."""
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
        for element in elements:
            if element.ref and element.ref not in self._shown:
                self._last += 1
                self._shown[element.ref] = name = f"e{self._last}"
                self._own[name] = element.ref
        return [element._replace(ref=self._shown.get(element.ref, "")) for element in elements]

    def copied(self, named: Sequence[Element], elements: Sequence[Element]) -> "Ids":
        """Return ids for a copy of the page, in which ``elements`` have the names of ``named``, one for one."""
        made = Ids()
        made._last = self._last
        for element, other in zip(named, elements, strict=True):
            if element.ref and other.ref:
                made._shown[other.ref] = element.ref
                made._own[element.ref] = other.ref
        return made

    def own(self, name: str) -> str:
        """Return Playwright's id of the element that the agent calls ``name``; empty if it has seen none."""
        return self._own.get(name, "")


def read_snapshot(text: str) -> list[Element]:
    """Return the elements of a snapshot of Playwright (``mode="ai"``), parents before children.

    Playwright writes one node per line and escapes line breaks, so the lines are read one by one. A YAML parser would take more
    CPU time than all other work of a step; the tests compare both.
    """
    nodes = [_node(line) for line in cleaned(text).split("\n") if line]
    elements: list[Element] = []
    depths = [0]
    """How deep the children of the last node of each level are, counting only elements that are shown."""
    number = 0
    while number < len(nodes):
        node = nodes[number]
        element = _element(node.key, node.value, depths[node.level])
        number += 1
        while number < len(nodes) and nodes[number].key.startswith("/"):
            element = _with_property(element, nodes[number])
            number += 1
        if element.role in _FIELDS:
            element, number = _with_content(element, nodes, number, node.level + 1)
        shown = _worth_showing(element)
        if shown:
            elements.append(element)
        depths[node.level + 1 :] = [element.depth + shown]
    return _placed(elements) if any(item.role == "iframe" for item in elements) else elements


def _placed(elements: Sequence[Element]) -> list[Element]:
    """Return elements with boxes in the window: Playwright gives those inside a frame from the frame's corner.

    The border of a frame, usually two pixels, is not known and not added.
    """
    placed: list[Element] = []
    corners = [(0.0, 0.0)]
    """Where the frame is to which the children of the last element of each depth belong."""
    for element in elements:
        x, y = corners[element.depth]
        box = element.box and (element.box[0] + x, element.box[1] + y, element.box[2], element.box[3])
        corners[element.depth + 1 :] = [box[:2] if box and element.role == "iframe" else (x, y)]
        placed.append(element._replace(box=box))
    return placed


class _Node(NamedTuple):
    level: int
    key: str
    value: str


def _node(line: str) -> _Node:
    """Read one line: ``- key``, ``- key:`` or ``- key: value``, with single quotes around a key that needs them."""
    rest = line.lstrip(" ")
    level = (len(line) - len(rest)) // 2
    quoted = _QUOTED.match(rest)
    if quoted is not None:
        key, rest = quoted[1].replace("''", "'"), rest[quoted.end() :]
        value = rest.removeprefix(":").removeprefix(" ")
    else:
        key, _, value = rest.removeprefix("- ").removesuffix(":").partition(": ")
    return _Node(level, key, _unescaped(value) if value.startswith('"') else value)


def _unescaped(value: str) -> str:
    inside = value[1:-1]
    return cleaned(_ESCAPED.sub(_character, inside)) if "\\" in inside else inside


def _character(match: "re.Match[str]") -> str:
    return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])


def cleaned(text: str) -> str:
    """Return ``text`` without characters that end a line, steer a terminal or cannot be encoded."""
    return _UNREADABLE.sub("\ufffd", _LINE_ENDS.sub(" ", text))


def _element(key: str, value: str, depth: int) -> Element:
    match = _KEY.match(key)
    if match is None:
        raise EnvError(f"the browser's snapshot has a line that cannot be read: {key[:200]!r}")
    role, name, written = match.groups()
    if name:
        name = cleaned(json.loads(name)) if "\\" in name else name[1:-1]
    ref, box, clickable, marks = "", None, False, []
    for mark in written[2:-1].split("] [") if written else ():
        kind, _, given = mark.partition("=")
        if kind == "ref":
            ref = given
        elif kind == "cursor":
            clickable = True
        elif kind == "box":
            box = _box(given)
        else:
            marks.append("focused" if mark == "active" else mark)
    return Element(depth, role, name or "", ref, value, tuple(marks), "", clickable, box)


def _box(numbers: str) -> tuple[float, float, float, float] | None:
    left, top, wide, high = map(float, numbers.split(","))
    return left, top, wide, high


def _with_property(element: Element, node: _Node) -> Element:
    if node.key == "/url":
        return element._replace(url=node.value)
    return element._replace(value=element.value or node.value) if node.key == "/placeholder" else element


def _with_content(field: Element, nodes: Sequence[_Node], start: int, level: int) -> tuple[Element, int]:
    """Return a field with its text as its value instead of the placeholder, and the place behind the text."""
    end = start
    while end < len(nodes) and nodes[end].level >= level:
        end += 1
    inner = nodes[start:end]
    if not inner or any(node.key != "text" for node in inner):
        return field, start
    return field._replace(value=" ".join(node.value for node in inner)), end


def _worth_showing(element: Element) -> bool:
    """A container without a name or text only holds others."""
    return bool(element.role not in _PLAIN or element.name or element.value or element.clickable)


def usable(element: Element) -> bool:
    """Return whether an element is made to be clicked, chosen or written into."""
    return bool(element.ref) and (element.role in _USABLE or element.clickable)


def in_window(elements: Sequence[Element], width: float, height: float) -> list[Element]:
    """Return the elements that a window of this size shows, with their texts. The elements must have been read with boxes."""
    kept: list[Element] = []
    shown = [True]
    """Whether the last element of each depth is in the window: a text without an id is where its parent is."""
    for element in elements:
        seen = shown[min(element.depth, len(shown) - 1)] if element.box is None else _meets(element.box, width, height)
        shown[element.depth + 1 :] = [seen]
        if seen:
            kept.append(element)
    return kept


def _meets(box: tuple[float, float, float, float], width: float, height: float) -> bool:
    left, top, wide, high = box
    return left < width and top < height and left + wide > 0 and top + high > 0


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
