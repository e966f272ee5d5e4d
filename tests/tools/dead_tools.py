"""Plays episodes whose agent needs the Python tool, and says as JSON how each ended.

``python -m tests.tools.dead_tools N [LIMIT] [--late] [--forbidden]``: ``N`` episodes at once, with ``LIMIT`` as soft and hard
limit on open descriptors. With ``--late`` the tool believes that the machine can start boxes, so that the episodes find out.
With ``--forbidden`` no user namespace may be made.
"""

import argparse
import asyncio
import concurrent.futures.thread  # noqa: F401  (loaded late otherwise, when our files cannot be read any more)
import json
import resource
from collections import Counter
from functools import partial
from typing import Any

from tests.sandbox.no_user_namespaces import enter

from palestra.core import AsyncEnv, Step
from palestra.errors import MissingExtra
from palestra.rollouts import rollout
from palestra.sandbox import Bubblewrap, Limits
from palestra.sandbox.profile import _proven
from palestra.tools.python import PythonTool
from palestra.trajectory import Content, Task, Trajectory
from palestra.wrappers import ToolRules, UseTools

CALL = '<tool_call>{"name": "python", "arguments": {"code": "print(6 * 7)"}}</tool_call>'


class Product(AsyncEnv):
    """Asks for a product; one move."""

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Content, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "6 * 7 = ?", {}

    async def step(self, action: str) -> Step:
        return Step("", float(action == "42"), True, False, {})


async def by_tool(observation: str) -> str:
    """Call the tool, then say what it said. Without it the answer is unknown."""
    return "42" if "42" in observation else "no idea" if "tool_response" in observation else CALL


def kind_of(episode: Trajectory) -> str:
    if episode.stop.failed:
        return f"failed: {episode.failures[-1].boundary.value}"
    return "right" if episode.reward == 1.0 else "scored with a dead tool"


async def play(count: int) -> dict[str, Any]:
    lend = partial(UseTools, tools=[PythonTool()], rules=ToolRules())
    kinds: Counter[str] = Counter()
    messages: Counter[str] = Counter()
    async for episode in rollout(Product, by_tool, n=count, concurrency=count, deadline=300.0, wrappers=[lend]):
        kinds[kind_of(episode)] += 1
        messages.update(failure.message for failure in episode.failures[-1:])
    return {"kinds": kinds, "messages": messages.most_common(3)}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("count", type=int)
    parser.add_argument("limit", type=int, nargs="?")
    parser.add_argument("--late", action="store_true")
    parser.add_argument("--forbidden", action="store_true")
    given = parser.parse_args()
    if given.forbidden:
        Bubblewrap()  # everything is read while we still can: our own files may lie in a home folder
        enter()
    if given.limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given.limit, given.limit))
    if given.late:
        _proven.add((Limits(), "/usr/bin/python3"))
    try:
        print(json.dumps(asyncio.run(play(given.count))))
    except MissingExtra as error:
        print(json.dumps({"refused": str(error)}))


if __name__ == "__main__":
    main()
