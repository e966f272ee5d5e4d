import asyncio
from pathlib import Path

from palestra.tools.search import Document, SearchTool
from palestra.tools.search.bm25 import Bm25Index, build_index

documents = [
    Document("1", "Gymnasium", "A place where the Greeks exercised."),
    Document("2", "Palaestra", "A school for wrestling in ancient Greece."),
]
build_index(documents, Path("greece.index"))
search = SearchTool(Bm25Index("greece.index"), k=1)
print(asyncio.run(search(query="a school for wrestling")).text)
