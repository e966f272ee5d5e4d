"""The articles of the encyclopedia: those of the search world, invented from the seed of the episode."""

import re
from functools import lru_cache
from urllib.parse import quote

from palestra.tools.search import Document
from palestra.worlds.deepsearch.graph import Graph
from palestra.worlds.deepsearch.invented import invented_world

__all__ = ["ARTICLES", "HOST", "address_of", "documents_of", "mentions", "world_of"]

HOST = "wiki.test"
ARTICLES = 400


def world_of(seed: int) -> Graph:
    """Return the world of ``seed``."""
    return invented_world(seed, ARTICLES)


@lru_cache(maxsize=4)
def documents_of(seed: int) -> tuple[Document, ...]:
    """Return the articles of the world of ``seed``."""
    return tuple(world_of(seed).documents())


def address_of(title: str, host: str = HOST) -> str:
    """Return the address of the article ``title``."""
    return f"http://{host}/wiki/{quote(title.replace(' ', '_'))}"


def mentions(text: str, title: str) -> bool:
    """Return whether ``text`` has ``title`` as whole words."""
    return title in text and re.search(rf"\b{re.escape(title)}\b", text) is not None
