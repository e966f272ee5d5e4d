"""Ready-made forms with tools, for ids that name them: an interpreter for mathematics, search for questions.

The agent may call the tool for some turns; its first message without a call is its answer and ends the episode.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

from palestra.core import AsyncEnv
from palestra.errors import MissingData
from palestra.tools.forms import CallForm
from palestra.tools.search.documents import Retriever
from palestra.wrappers.limits import TurnLimit
from palestra.wrappers.use_tools import ToolRules, UseTools

__all__ = ["SEARCH", "TURNS", "with_python", "with_search"]

TURNS = 8
"""Messages of an episode with tools, the answer included."""
SEARCH = "PALESTRA_SEARCH"
"""The environment variable that says where to search: the address of a retrieval server, or the folder of an index."""


def with_python(env: AsyncEnv) -> AsyncEnv:
    """Lend a Python interpreter in a box, called by a fenced block or by a tool call."""
    from palestra.tools.python import PythonTool

    rules = ToolRules(forms=(CallForm.TOOL_CALL, CallForm.PYTHON_FENCE))
    tools: list[Any] = [PythonTool()]
    return TurnLimit(UseTools(env, tools, rules), turns=TURNS)


def with_search(env: AsyncEnv) -> AsyncEnv:
    """Lend a search tool over what ``PALESTRA_SEARCH`` names."""
    from palestra.tools.search import SearchTool

    rules = ToolRules(forms=(CallForm.TOOL_CALL, CallForm.SEARCH_TAG))
    tools: list[Any] = [SearchTool(_retriever())]
    return TurnLimit(UseTools(env, tools, rules), turns=TURNS)


def _retriever() -> Retriever:
    where = os.environ.get(SEARCH, "")
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
def _index(folder: str) -> Retriever:
    from palestra.tools.search.bm25 import Bm25Index

    return Bm25Index(Path(folder))
