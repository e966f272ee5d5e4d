"""Palestra's side of the process that grades WebArena-Verified. Episodes with the same sites and tasks share one process."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from palestra.errors import EnvError, MissingExtra
from palestra.foundation.processes.other_python import OtherPython, named_python
from palestra.foundation.resources.sharing import SharedPerLoop

__all__ = ["PYTHON", "ArenaTask", "Graded", "Judge", "Package", "original_tasks", "shared_judge"]

PYTHON = "PALESTRA_WEBARENA_PYTHON"
"""The environment variable that names the Python which has the package."""
ANSWER_SECONDS, WHERE_SECONDS = 120.0, 60.0
_INSTALL = 'uv venv arena && uv pip install --python arena/bin/python "webarena-verified==1.2.3"'


class Package(NamedTuple):
    """What a process is started with."""

    addresses: tuple[tuple[str, str], ...]
    """Names of sites, and their addresses."""
    data: str = ""
    """A file of tasks in the format of the package; empty for its own 812 tasks."""


class ArenaTask(NamedTuple):
    """One task, as far as an episode has to know it. What is right stays in the other process."""

    id: int
    sites: tuple[str, ...]
    goal: str
    starts: tuple[str, ...]
    """The addresses of the first pages; none if the address of a site is not known."""
    kind: str
    """``retrieve``, ``mutate`` or ``navigate``."""


class Graded(NamedTuple):
    """What the package says about an episode."""

    score: float
    status: str


class Judge:
    """The process. It starts with the first question."""

    def __init__(self, package: Package) -> None:
        self._package = package
        self._turn = asyncio.Lock()
        self._process = _process()
        self._tasks: tuple[ArenaTask, ...] = ()

    async def tasks(self) -> tuple[ArenaTask, ...]:
        """Return all tasks of the package, or of the file."""
        if not self._tasks:
            async with self._ready():
                pass
        return self._tasks

    async def grade(self, task: int, answer: str, trace: list[dict[str, Any]]) -> Graded:
        """Return the score of the package for an answer and the requests of an episode."""
        order = {"do": "grade", "task": task, "answer": answer, "trace": trace}
        async with self._ready() as process:
            verdict = await process.ask(order, ANSWER_SECONDS)
        if verdict["error"]:
            raise EnvError(f"WebArena-Verified cannot grade its task {task}: {verdict['error'][:500]}")
        return Graded(float(verdict["score"]), str(verdict["status"]))

    @asynccontextmanager
    async def _ready(self) -> AsyncIterator[OtherPython]:
        """Wait for the turn, and give a process that has read the tasks.

        The process may have ended while a caller waited, so only the one whose turn it is knows whether to start another.
        """
        async with self._turn:
            if self._process.pid is None:
                order = {"do": "open", "addresses": dict(self._package.addresses), "data": self._package.data}
                answer = await self._process.begin(order, ANSWER_SECONDS)
                self._tasks = tuple(
                    ArenaTask(**{**task, "sites": tuple(task["sites"]), "starts": tuple(task["starts"])}) for task in answer
                )
            yield self._process

    async def close(self) -> None:
        """End the process."""
        await self._process.kill()


def _python() -> str:
    return named_python(PYTHON, _INSTALL)


_folders: dict[str, str] = {}
"""Python → the folder of its package."""


async def original_tasks() -> Path:
    """Return the file of WebArena's own tasks, which the package has beside those of WebArena-Verified."""
    python = _python()
    if python not in _folders:
        process = _process()
        try:
            _folders[python] = await process.begin({"do": "where"}, WHERE_SECONDS)
        except EnvError as error:
            raise MissingExtra(f"the Python of {PYTHON} has no webarena-verified: {_INSTALL}; {error}") from None
        finally:
            await process.kill()
    path = Path(_folders[python], "assets", "dataset", "test.raw.json")
    if not path.is_file():  # noqa: ASYNC240 - one look at a local file
        raise MissingExtra(f"the webarena-verified of {PYTHON} has no tasks of WebArena, version 1.2.3 has: {_INSTALL}")
    return path


def _process() -> OtherPython:
    return OtherPython("WebArena-Verified", _python, Path(__file__).with_name("judge.py"))


_shared: SharedPerLoop[Package, Judge] = SharedPerLoop(Judge, Judge.close)


def shared_judge(package: Package) -> AbstractAsyncContextManager[Judge]:
    """Share the process among all users on the running loop; the last one to leave ends it."""
    return _shared.use(package)
