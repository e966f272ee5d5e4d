"""Search: by words (``bm25``), by meaning (``dense``), both at once, here or on a server (``remote``), and the tool on top."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from palestra.tools.search.documents import Document, Hit, Retriever, read_corpus
from palestra.trajectory import ToolResult

__all__ = ["Document", "Hit", "Retriever", "SearchTool", "read_corpus"]


class SearchTool:
    """Looks things up. Results are cached: the same words find the same documents, and policies repeat themselves."""

    name = "search"
    description = "Search a collection of documents. Returns the passages that fit best."
    parameters: Mapping[str, Any] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to look for, in words."}},
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(self, retriever: Retriever, *, k: int = 3, passage_characters: int = 1500, cached: int = 10_000) -> None:
        self._retriever = retriever
        self._k = k
        self._passage = passage_characters
        self._cached = cached
        self._cache: OrderedDict[str, ToolResult] = OrderedDict()
        self.hits = self.misses = 0
        """How often the cache knew, and did not."""

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must never be shown: the retriever's."""
        return tuple(getattr(self._retriever, "secrets", ()))

    async def __call__(self, /, **arguments: Any) -> ToolResult:
        return await self.search(**arguments)

    async def search(self, query: str) -> ToolResult:
        """The passages that fit ``query``, as the model sees them."""
        query = " ".join(query.split())
        if query in self._cache:
            self.hits += 1
            self._cache.move_to_end(query)
            return self._cache[query]
        self.misses += 1
        self._cache[query] = result = await self._find(query)
        if len(self._cache) > self._cached:
            self._cache.popitem(last=False)
        return result

    async def _find(self, query: str) -> ToolResult:
        (hits,) = await self._retriever.retrieve([query], self._k)
        text = "\n\n".join(self._shown(number, hit) for number, hit in enumerate(hits, 1))
        return ToolResult(text or "Nothing was found. Try other words.", source=self._retriever.source)

    def _shown(self, number: int, hit: Hit) -> str:
        title = f" {hit.document.title}" if hit.document.title else ""
        text = hit.document.text
        cut = text if len(text) <= self._passage else f"{text[: self._passage]} …"
        return f"[{number}]{title}\n{cut}"
