import asyncio
from pathlib import Path

import palestra
from palestra.tools.search import Document, SearchTool
from palestra.tools.search.bm25 import Bm25Index, build_index

documents = [
    Document("1", "Gymnasium", "A place where the Greeks exercised."),
    Document("2", "Palaestra", "A school for wrestling in ancient Greece."),
]
build_index(documents, Path("greece.index"))
search = SearchTool(Bm25Index("greece.index"), k=1)
print(asyncio.run(search(query="a school for wrestling")).text)

env = palestra.UseTools(palestra.make("game:GuessTheNumber-v0"), [search])
observation, info = env.reset(seed=0)  # begins with a description of the tool
call = '<tool_call>{"name": "search", "arguments": {"query": "wrestling"}}</tool_call>'
observation, reward, terminated, truncated, info = env.step(call)
print(observation)  # what was found; the game has not moved
env.close()
