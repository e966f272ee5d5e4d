"""Many episodes at once, each with Python, search and MCP calls, while some of the tools hang or crash."""

import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from palestra.core import AsyncEnv, Step, Tool
from palestra.sandbox import Bubblewrap, Limits
from palestra.tools.mcp import McpServer
from palestra.tools.python import PythonTool
from palestra.tools.search import Document, SearchTool
from palestra.tools.search.bm25 import Bm25Index, build_index
from palestra.trajectory import Content, Task, ToolCall
from palestra.trajectory.calls import format_call
from palestra.wrappers import ToolRules, UseTools

SERVER = Path(__file__).with_name("plain_mcp_server.py")
FAULTY = [("python", {"code": "while True: pass"}), ("python", {"code": "import os; os._exit(1)"}), ("hang", {}), ("crash", {})]


class OneMove(AsyncEnv):
    """Ends on the first move."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "Go.", {}

    async def step(self, action: str) -> Step:
        return Step("", 1.0, True, False, {})


def _call(chance: random.Random, faults: float) -> tuple[str, dict[str, Any]]:
    if chance.random() < faults:
        return chance.choice(FAULTY)
    number = chance.randrange(1000)
    good: list[tuple[str, dict[str, Any]]] = [
        ("python", {"code": f"print({number} + 1)"}),
        ("search", {"query": f"document {number}"}),
        ("add", {"a": number, "b": 1}),
    ]
    return chance.choice(good)


async def episodes(count: int = 256, calls: int = 4, faults: float = 0.05) -> dict[str, Any]:
    """Play ``count`` episodes of ``calls`` calls at once; what became of every call, and what was left behind."""
    began, fds, children = time.monotonic(), len(os.listdir("/proc/self/fd")), _children()
    finished, totals = await _played(count, calls, faults)
    await asyncio.sleep(0.2)
    gc.collect()  # an index has its files mapped until nothing uses it any more
    left = {"fds": len(os.listdir("/proc/self/fd")) - fds, "processes": len(_children() - children)}
    print(f"episodes: {finished} of {count} finished in {time.monotonic() - began:.1f} s")
    print(f"episodes: {totals.total()} of {count * calls} calls accounted: {dict(totals)}")
    print(f"episodes: left behind {left} (target 0)")
    return {"finished": finished, "calls": totals.total(), "left": left, "totals": dict(totals)}


async def _played(count: int, calls: int, faults: float) -> tuple[int, Counter[str]]:
    totals: Counter[str] = Counter()
    finished = 0
    with tempfile.TemporaryDirectory(prefix="palestra-bench-") as folder:
        documents = (Document(str(n), f"Document {n}", f"This is document {n}.") for n in range(1000))
        build_index(documents, Path(folder) / "index")
        search = SearchTool(Bm25Index(Path(folder) / "index"))
        server = McpServer(command=[sys.executable, "-I", "-S", str(SERVER)], sessions=16, allow=["add", "hang", "crash"])
        async with Bubblewrap(Limits(wall_seconds=2.0), warm=4) as sandbox, server:
            tools: list[Tool] = [PythonTool(sandbox), search, *await server.tools()]

            async def play(number: int) -> None:
                nonlocal finished
                chance = random.Random(number)
                env = UseTools(OneMove(), tools, ToolRules(seconds=60.0))
                try:
                    await env.reset(seed=number)
                    for _ in range(calls):
                        name, arguments = _call(chance, faults)
                        if name == "hang":
                            env.rules = ToolRules(seconds=2.0)
                        await env.step(format_call(ToolCall(name, arguments)))
                    finished += (await env.step("done")).terminated
                    totals.update(env.totals)
                finally:
                    await env.close()

            async with asyncio.TaskGroup() as group:
                for number in range(count):
                    group.create_task(play(number))
    return finished, totals


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())
