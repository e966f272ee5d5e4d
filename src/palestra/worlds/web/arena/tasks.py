"""The tasks of WebArena, read from its file ``test.raw.json`` with the addresses of the user's own sites.

A task is graded by up to three kinds of checks, and all of them must pass: its answer, the address at which it ends, and
contents of pages. Everything that a check of contents may call is listed in ``CALLS``: no code of a file is run.
"""

import ast
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from palestra.errors import UsageError
from palestra.worlds.web.arena.matching import bare

__all__ = ["CALLS", "Call", "Target", "WebTask", "read_tasks"]

CALLS: Mapping[str, int] = {
    "reddit_get_post_url": 1,
    "shopping_get_latest_order_url": 0,
    "shopping_get_sku_latest_review_author": 1,
    "shopping_get_sku_latest_review_rating": 1,
    "gitlab_get_project_memeber_role": 2,
}
"""The functions that tasks name, and how many arguments they have."""
_KINDS = ("string_match", "url_match", "program_html")
_RULES = ("GOLD in PRED", None, "")
_PLACE = re.compile(r"__([A-Z_]+?)__")


class Call(NamedTuple):
    """A function that a task names, with its arguments."""

    name: str
    arguments: tuple[str, ...]


class Target(NamedTuple):
    """One check of the contents of a page."""

    url: str | Call
    """The address of the page, a call that returns it, or ``last``: the page at which the episode ended."""
    locator: str | Call
    """An expression in JavaScript, a call, or an empty text for the whole page."""
    prepare: tuple[str, ...] = ()
    """Expressions in JavaScript to run before."""
    exact: str | None = None
    includes: tuple[tuple[str, ...], ...] = ()
    """Texts of which one must be on the page, for each group."""


class WebTask(NamedTuple):
    """One task."""

    id: int
    sites: tuple[str, ...]
    goal: str
    starts: tuple[str, ...] = ()
    """The addresses of the first pages; none if the address of a site is not known."""
    exact: str | None = None
    includes: tuple[str, ...] = ()
    similar: tuple[str, ...] = ()
    """Answers to which the answer must be similar, in the eyes of a judge."""
    impossible: str | None = None
    """The reason why the task cannot be done. A judge decides whether the answer names it, unless that is ``N/A``."""
    urls: tuple[str, ...] = ()
    """Addresses of which one must be the last."""
    targets: tuple[Target, ...] = ()

    @property
    def needs_judge(self) -> bool:
        """Whether a judge has to read the answer."""
        return bool(self.similar) or self.impossible is not None


def read_tasks(path: str | Path, addresses: Mapping[str, str]) -> list[WebTask]:
    """Return all tasks of a file. The addresses replace the names of sites, such as ``__SHOPPING__``.

    Raises:
        UsageError: The file is not in WebArena's format, or has a check that is not known.
    """
    sites = {name.upper(): address.rstrip("/") for name, address in addresses.items()}
    try:
        rows = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} has no tasks of WebArena: {error}") from None
    if not isinstance(rows, list):
        raise UsageError(f"{path} has no tasks of WebArena: a list is expected")
    tasks = []
    for number, row in enumerate(rows):
        try:
            tasks.append(_task(_replaced(row, sites), set(addresses)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UsageError(f"task {number} of {path} is not in WebArena's format: {type(error).__name__}: {error}") from None
    return tasks


def _replaced(value: Any, sites: Mapping[str, str]) -> Any:
    """Return a value of JSON with addresses for the names of sites. A name whose address is not known stays."""
    if isinstance(value, str):
        return _PLACE.sub(lambda match: sites.get(match[1], match[0]), value)
    if isinstance(value, list):
        return [_replaced(item, sites) for item in value]
    return {name: _replaced(item, sites) for name, item in value.items()} if isinstance(value, dict) else value


def _task(row: Mapping[str, Any], reachable: set[str]) -> WebTask:
    checks, sites = row["eval"], tuple(row["sites"])
    kinds = checks["eval_types"]
    if not kinds or not set(kinds) <= set(_KINDS) or checks.get("url_note") not in _RULES:
        raise ValueError(f"the checks are {kinds} with the rule {checks.get('url_note')!r}; known are {', '.join(_KINDS)}")
    fields: dict[str, Any] = {}
    if "string_match" in kinds:
        fields |= _answer(checks)
    if "url_match" in kinds:
        fields["urls"] = _alternatives(checks["reference_url"])
    if "program_html" in kinds:
        fields["targets"] = tuple(map(_target, checks["program_html"]))
        if not fields["targets"]:
            raise ValueError("the check program_html names no page")
    starts = tuple(row["start_url"].split(" |AND| ")) if set(sites) <= reachable else ()
    return WebTask(int(row["task_id"]), sites, str(row["intent"]), starts, **fields)


def _answer(checks: Mapping[str, Any]) -> dict[str, Any]:
    wanted = dict(checks["reference_answers"])
    includes = _texts(wanted.pop("must_include", []))
    fields = {"exact": wanted.pop("exact_match", None), "includes": tuple(map(_filled, includes))}
    similar = wanted.pop("fuzzy_match", [])
    if similar == "N/A":
        fields["impossible"] = str(checks.get("string_note", ""))
    else:
        fields["similar"] = _texts(similar)
    if wanted or all(value in (None, ()) for value in fields.values()):
        raise ValueError(f"the answer is compared by {', '.join(checks['reference_answers']) or 'nothing'}")
    return fields


def _target(row: Mapping[str, Any]) -> Target:
    wanted = row["required_contents"]
    if set(wanted) not in ({"exact_match"}, {"must_include"}):
        raise ValueError(f"contents are compared by {', '.join(wanted) or 'nothing'}")
    includes = tuple(map(_alternatives, _texts(wanted.get("must_include", []))))
    if "must_include" in wanted and not includes:
        raise ValueError("the contents must include nothing: such a check passes on every page")
    locator = _called(row["locator"])
    if isinstance(locator, str) and locator.strip() and not locator.startswith(("document.", "[...document.")):
        raise ValueError(f"unknown locator {locator[:60]!r}")
    return Target(_called(row["url"]), locator, _texts(row.get("prep_actions", [])), wanted.get("exact_match"), includes)


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(map(_filled, text.split(" |OR| ")))


def _filled(text: str) -> str:
    """Return a text that must be found somewhere. An empty one is everywhere, so each agent would pass."""
    if not bare(text):
        raise ValueError(f"a text to look for is empty: {text!r}")
    return text


def _texts(values: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise TypeError(f"a list of texts is expected, got {values!r:.60}")
    return tuple(values)


def _called(text: str) -> str | Call:
    """Return the call that a text names, or the text."""
    if not text.startswith("func:"):
        return text
    try:
        call = ast.parse(text.removeprefix("func:").strip(), mode="eval").body
    except SyntaxError:
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.keywords:
        raise ValueError(f"{text[:60]!r} is no call")
    arguments = tuple(_argument(argument) for argument in call.args)
    if CALLS.get(call.func.id) != len(arguments):
        raise ValueError(f"there is no function {call.func.id} of {len(arguments)} arguments")
    return Call(call.func.id, arguments)


def _argument(node: ast.expr) -> str:
    """Return an argument: a text, or the name ``__page__``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.Name):
        return node.id
    raise ValueError("the arguments of a call are texts")
