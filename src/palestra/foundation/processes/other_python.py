"""A child process with another Python, which answers questions in JSON.

Packages that pin their requirements have a virtual environment of their own. Palestra starts ``answering`` with its Python. The
answer ``{"failure": "…"}`` is an exception in that process. An unanswered question ends the process; only ``begin`` starts
another one.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from palestra.errors import EnvError, InfrastructureError, MissingExtra, UsageError, is_infrastructure
from palestra.foundation.processes.child import Child
from palestra.foundation.processes.frames import json_line, read_json_line

__all__ = ["OtherPython", "named_python"]

_MOST_LINE = 64 * 2**20
_END_SECONDS = 10.0
_LOOP = Path(__file__).with_name("answering.py")


def named_python(variable: str, install: str) -> str:
    """Return the path of the Python that an environment variable names. ``install`` says how to make one."""
    if python := os.environ.get(variable, ""):
        return python
    raise MissingExtra(f"the package needs a virtual environment of its own: {install}; then set {variable} to its Python")


class OtherPython:
    """The process. It starts with ``begin``.

    Args:
        name: What the messages call the package in the process.
        python: Returns the path of the Python.
        script: The file that ``answering`` runs.
        variables: The environment of the process, besides ``PATH``.
    """

    def __init__(self, name: str, python: Callable[[], str], script: Path, variables: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._python = python
        self._script = script
        self._variables = {"PATH": os.defpath, "PYTHONHASHSEED": "0", **(variables or {})}
        self._child: Child[Mapping[str, Any], Any] | None = None

    async def begin(self, order: Mapping[str, Any], seconds: float) -> Any:
        """Start the process, and return the answer to the first question. If it is a failure, the process ends.

        Raises:
            UsageError: The Python cannot be started.
        """
        assert self.pid is None
        python = self._python()
        command = (python, "-I", str(_LOOP), str(self._script))
        try:
            self._child = await Child.start(command, self._variables, json_line, read_json_line, most_bytes=_MOST_LINE)
        except OSError as error:
            kind = InfrastructureError if is_infrastructure(error) else UsageError
            raise kind(f"the Python of {self._name}, {python}, cannot be started: {error.strerror}") from None
        try:
            return await self.ask(order, seconds)
        except EnvError:
            await self.kill()
            raise

    @property
    def pid(self) -> int | None:
        """The id of the process, if there is one."""
        return self._child.pid if self._child is not None and self._child.alive else None

    async def ask(self, order: Mapping[str, Any], seconds: float) -> Any:
        """Return the answer to a question.

        Raises:
            InfrastructureError: The process has ended, or does not answer within ``seconds``.
            EnvError: The package has failed.
        """
        child = self._child
        if child is None or not child.alive:
            raise InfrastructureError(f"the process of {self._name} has ended")
        try:
            answer = await child.ask(order, seconds)
        except OSError as error:
            printed = f"; it has printed: {child.printed}" if child.printed else ""
            raise InfrastructureError(f"the process of {self._name} does not answer{printed}") from error
        if isinstance(answer, dict) and "failure" in answer:
            raise EnvError(f"{self._name} has failed: {answer['failure'][-1000:]}")
        return answer

    async def end(self) -> None:
        """Close the input, so that the process can clean up, and wait until it has ended."""
        if self._child is not None:
            await self._child.end(_END_SECONDS)

    async def kill(self) -> None:
        """End the process at once."""
        if self._child is not None:
            await self._child.kill()
