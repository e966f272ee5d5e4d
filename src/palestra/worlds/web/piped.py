"""A process with another Python, which answers questions over a pipe.

Packages that pin their requirements have a virtual environment of their own. Palestra starts ``piped_process`` with its Python.
Each line of its input is a question in JSON, each line of its output the answer. The answer ``{"failure": "…"}`` is an
exception in that process. An unanswered question ends the process, since its answer would stay in the pipe; only ``begin``
starts another one.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from palestra.errors import EnvError, InfrastructureError, MissingExtra, UsageError, is_infrastructure

__all__ = ["Piped", "named_python"]

_MOST_LINE = 64 * 2**20
_END_SECONDS = 10.0
_LOOP = Path(__file__).with_name("piped_process.py")
_MOST_PRINTED = 1000


def named_python(variable: str, install: str) -> str:
    """Return the path of the Python that an environment variable names. ``install`` says how to make one."""
    if python := os.environ.get(variable, ""):
        return python
    raise MissingExtra(f"the package needs a virtual environment of its own: {install}; then set {variable} to its Python")


class Piped:
    """The process. It starts with ``begin``.

    Args:
        name: What the messages call the package in the process.
        python: Returns the path of the Python.
        script: The file that ``piped_process`` runs.
        variables: The environment of the process, beside ``PATH``.
    """

    def __init__(self, name: str, python: Callable[[], str], script: Path, variables: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._python = python
        self._script = script
        self._variables = {"PYTHONHASHSEED": "0", **(variables or {})}
        self._process: asyncio.subprocess.Process | None = None
        self._printed: IO[bytes] | None = None
        """What the process has printed since its last answer."""

    async def begin(self, order: Mapping[str, Any], seconds: float) -> Any:
        """Start the process, and return the answer to the first question. If it is a failure, the process ends.

        Raises:
            UsageError: The Python cannot be started.
        """
        await self._start()
        try:
            return await self.ask(order, seconds)
        except EnvError:
            await self.kill()
            raise

    @property
    def pid(self) -> int | None:
        """The id of the process, if there is one."""
        return self._process.pid if self._process is not None else None

    async def ask(self, order: Mapping[str, Any], seconds: float) -> Any:
        """Return the answer to a question.

        Raises:
            InfrastructureError: The process has ended, or does not answer within ``seconds``.
            EnvError: The package has failed.
        """
        try:
            answer = await self._answer(order, seconds)
        except (OSError, TimeoutError):
            printed = self._last_lines()
            await self.kill()
            raise InfrastructureError(f"the process of {self._name} does not answer{printed}") from None
        except BaseException:
            await self.kill()
            raise
        if isinstance(answer, dict) and "failure" in answer:
            raise EnvError(f"{self._name} has failed: {answer['failure'][-1000:]}")
        return answer

    async def _answer(self, order: Mapping[str, Any], seconds: float) -> Any:
        process = self._process
        if process is None or self._printed is None:
            raise InfrastructureError(f"the process of {self._name} has ended")
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(seconds):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        if not line:
            raise ConnectionError
        self._printed.seek(0)  # the process writes at the same place, so the file stays small
        self._printed.truncate()
        return json.loads(line)

    async def _start(self) -> None:
        assert self._process is None
        python = self._python()
        # No pipe: processes that the package leaves behind would keep it open.
        self._printed = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        try:
            self._process = await asyncio.create_subprocess_exec(
                *(python, "-I", str(_LOOP), str(self._script)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=self._printed,
                limit=_MOST_LINE,
                env={"PATH": os.defpath, **self._variables},
            )
        except OSError as error:
            kind = InfrastructureError if is_infrastructure(error) else UsageError
            raise kind(f"the Python of {self._name}, {python}, cannot be started: {error.strerror}") from None
        finally:
            if self._process is None:
                self._forget()

    def _last_lines(self) -> str:
        """Return the end of what the process has printed, as the end of a message."""
        assert self._printed is not None
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _MOST_PRINTED))
        text = self._printed.read().decode(errors="replace").strip()
        return f"; it has printed: {text}" if text else ""

    def _forget(self) -> None:
        printed, self._printed = self._printed, None
        if printed is not None:
            printed.close()

    async def end(self) -> None:
        """Close the input, so that the process can clean up, and wait until it has ended."""
        process = self._process
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            pass
        finally:
            await self.kill()

    async def kill(self) -> None:
        """End the process at once."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
        self._forget()
