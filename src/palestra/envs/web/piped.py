"""A process with another Python, which answers questions over a pipe.

Packages that pin their requirements have a virtual environment of their own. Palestra starts a file with its Python, so the
file imports nothing of Palestra. Each line of its input is a question in JSON, each line of its output the answer. The answer
``{"failure": "…"}`` is an exception in that process. An unanswered question ends the process, since its answer would stay in
the pipe; the next question starts another one.
"""

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from palestra.errors import EnvError, InfrastructureError

__all__ = ["Piped"]

_MOST_LINE = 64 * 2**20
_END_SECONDS = 10.0


class Piped:
    """The process. It starts with the first question.

    Args:
        name: What the messages call the package in the process.
        python: Returns the path of the Python.
        script: The file to run.
        variables: The environment of the process, beside ``PATH``.
    """

    def __init__(self, name: str, python: Callable[[], str], script: Path, variables: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._python = python
        self._script = script
        self._variables = {"PYTHONHASHSEED": "0", **(variables or {})}
        self._process: asyncio.subprocess.Process | None = None

    async def begin(self, order: Mapping[str, Any], seconds: float) -> Any:
        """Return the answer to the first question. If it is a failure, the process ends."""
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
            await self.kill()
            raise InfrastructureError(f"the process of {self._name} does not answer") from None
        except BaseException:
            await self.kill()
            raise
        if isinstance(answer, dict) and "failure" in answer:
            raise EnvError(f"{self._name} has failed: {answer['failure'][-1000:]}")
        return answer

    async def _answer(self, order: Mapping[str, Any], seconds: float) -> Any:
        process = self._process or await self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(seconds):
            process.stdin.write(json.dumps(order).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        if not line:
            raise ConnectionError
        return json.loads(line)

    async def _start(self) -> asyncio.subprocess.Process:
        process = self._process = await asyncio.create_subprocess_exec(
            *(self._python(), "-I", str(self._script)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            limit=_MOST_LINE,
            env={"PATH": os.defpath, **self._variables},
        )
        return process

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
