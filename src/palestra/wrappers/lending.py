"""Wrappers and tools by name, for ids, recipes and the command line.

A name is a built-in's (``TurnLimit``, ``python``), or ``module:name`` for one of your own; keyword arguments go to the class or
function that it names. As text, the keywords follow a question mark: ``TurnLimit?turns=3``.

``lend`` makes the wrapper that lends tools to an environment. The agent may call the tools until the turn limit; its first
message without a call is its move.
"""

import os
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from palestra.core import AsyncEnv, Tool
from palestra.errors import MissingData, UsageError
from palestra.foundation.references import is_reference, resolve
from palestra.recipes.play import TOOL, WRAPPER
from palestra.registry import WrapperFactory, parse_options

if TYPE_CHECKING:  # every rollout imports this module, and few lend a tool
    from palestra.tools.search.documents import Retriever
    from palestra.wrappers.use_tools import ToolRules

__all__ = ["SEARCH", "lend", "named_tool", "named_wrapper", "with_python", "with_search"]

SEARCH = "PALESTRA_SEARCH"
"""The environment variable that says where to search: the address of a retrieval server, or the folder of an index."""


def named_wrapper(name: str, /, **keywords: Any) -> WrapperFactory:
    """Return the wrapper that ``name`` means, with ``keywords``, as a function from environment to environment.

    Args:
        name: ``Attempts``, ``KeepHistory``, ``Reword``, ``TokenLimit``, ``TurnLimit``, or ``module:name`` of your own class or
            function. Options may be part of the name: ``TurnLimit?turns=3``.
        keywords: Arguments of the class or function, besides the environment.

    Raises:
        UsageError: There is no such wrapper, or it does not take these keywords.

    Example::

        palestra.make("game:Sudoku-v0", wrappers=[named_wrapper("TurnLimit", turns=3)])
    """
    name, options = parse_options(name)
    wrap = WRAPPER.load({"use": name, **options, **keywords})

    def wrapped(env: AsyncEnv) -> AsyncEnv:
        made = wrap(env)
        if not isinstance(made, AsyncEnv):
            raise UsageError(f'the wrapper "{name}" returned a {type(made).__name__}; expected an AsyncEnv')
        return made

    return wrapped


def named_tool(name: str, /, **keywords: Any) -> Tool:
    """Return the tool that ``name`` means.

    Args:
        name: ``python`` (keywords of ``PythonTool``), ``search`` (``index`` is a folder or the address of a retrieval server;
            without it, the environment variable ``PALESTRA_SEARCH``), or ``module:name`` of a tool, or of a class or function
            that returns one. Options may be part of the name: ``search?index=corpus.index``.
        keywords: Arguments of the class or function.

    Raises:
        UsageError: There is no such tool, or it does not take these keywords.
    """
    name, options = parse_options(name)
    keywords = {**options, **keywords}
    tool: Any = resolve(name) if is_reference(name) else None
    if not _is_tool(tool):
        tool = TOOL.load({"use": name, **keywords})()
    elif keywords:
        raise UsageError(f'the tool "{name}" is an object, not a class: it takes no keywords, got {", ".join(keywords)}')
    if not _is_tool(tool):
        raise UsageError(f'"{name}" returned a {type(tool).__name__}; a tool has name, description, parameters and __call__')
    return tool  # type: ignore[no-any-return]


def lend(tools: Sequence[Tool | str], rules: "ToolRules | None" = None) -> WrapperFactory:
    """Return a wrapper that lends ``tools`` to an environment, for ``make``, ``register``, ``rollout`` and ``evaluate``.

    Args:
        tools: Tools, or names that ``named_tool`` knows.
        rules: How the tools may be used. By default, calls are written as ``<tool_call>``, and as ``<python>`` or ``<search>``
            if these tools are among ``tools``.

    Example::

        palestra.make("game:GuessTheNumber-v0", wrappers=[lend(["python"])])
    """
    lent = [named_tool(tool) if isinstance(tool, str) else tool for tool in tools]
    from palestra.tools.forms import CallForm
    from palestra.wrappers.use_tools import ToolRules, UseTools

    if rules is None:
        # How models that were trained on a tag call these tools, besides by a tool call.
        forms = {"python": CallForm.PYTHON_TAG, "search": CallForm.SEARCH_TAG}
        tags = [forms[tool.name] for tool in lent if tool.name in forms]
        rules = ToolRules(forms=(CallForm.TOOL_CALL, *dict.fromkeys(tags)))
    return partial(UseTools, tools=lent, rules=rules)


def with_python(env: AsyncEnv) -> AsyncEnv:
    """Lend a Python interpreter in a box, called by a fenced block or by a tool call."""
    from palestra.tools.forms import CallForm
    from palestra.wrappers.use_tools import ToolRules

    return lend(["python"], ToolRules(forms=(CallForm.TOOL_CALL, CallForm.PYTHON_FENCE)))(env)


def with_search(env: AsyncEnv) -> AsyncEnv:
    """Lend a search tool over the collection that ``PALESTRA_SEARCH`` names."""
    return lend(["search"])(env)


def _is_tool(value: Any) -> bool:
    return not isinstance(value, type) and callable(value) and all(hasattr(value, name) for name in ("name", "parameters"))


def search_tool(index: str = "", k: int = 3) -> Tool:
    """Return a search tool over ``index``, or over the collection that ``PALESTRA_SEARCH`` names."""
    from palestra.tools.search import SearchTool

    return SearchTool(_retriever(index or os.environ.get(SEARCH, "")), k=k)


def _retriever(where: str) -> "Retriever":
    if not where:
        raise MissingData(
            f"there is nothing to search: set {SEARCH} to the address of a retrieval server (http://…/retrieve) or to the "
            f"folder of an index (palestra index build CORPUS.jsonl)"
        )
    if where.startswith(("http://", "https://")):
        from palestra.tools.search.remote import RemoteRetriever

        return RemoteRetriever(where)
    return _index(where)


@cache
def _index(folder: str) -> "Retriever":
    from palestra.tools.search.bm25 import Bm25Index

    return Bm25Index(Path(folder))
