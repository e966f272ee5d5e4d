"""Questions to a process over a stream, one at a time, each with its answer or an ``OSError``."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, TypeVar

__all__ = ["Dialogue"]

Q = TypeVar("Q")
A = TypeVar("A")


class Dialogue(Generic[Q, A]):
    """A stream to a process. The package's docstring has the rules of its failures.

    Args:
        reader: The stream of the answers.
        writer: The stream of the questions.
        pack: Returns the bytes of a question.
        read: Reads one answer. What it cannot decode raises a ``ValueError``.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pack: Callable[[Q], bytes],
        read: Callable[[asyncio.StreamReader], Awaitable[A]],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._pack = pack
        self._read = read
        self._turn = asyncio.Lock()
        self.sound = True
        """Whether every question so far has had its answer."""

    @property
    def busy(self) -> bool:
        """Whether a question cannot be asked now: another one waits for its answer, or did not get one."""
        return self._turn.locked() or not self.sound

    async def ask(self, question: Q, seconds: float | None = None) -> A:
        """Return the answer to ``question``. Without ``seconds``, wait for as long as the process lives.

        Raises:
            TimeoutError: The process does not answer within ``seconds``.
            ConnectionError: The process has ended, or has sent what is not an answer.
        """
        async with self._turn:
            if not self.sound:
                raise ConnectionError("the process has ended")
            message = self._pack(question)
            answered = False
            try:
                async with asyncio.timeout(seconds):
                    self._writer.write(message)
                    await self._writer.drain()
                    answer = await self._read(self._reader)
                answered = True
            except asyncio.IncompleteReadError as error:
                raise ConnectionError("the process has ended") from error
            except (asyncio.LimitOverrunError, ValueError, RecursionError) as error:
                raise ConnectionError(f"the process has sent what is not an answer: {error}") from error
            finally:
                if not answered:
                    self.close()  # the answer may still come, and the next question must not receive it
            return answer

    def end_input(self) -> None:
        """Let the process read the end of its input."""
        if self._writer.can_write_eof() and not self._writer.is_closing():
            self._writer.write_eof()

    def close(self) -> None:
        """Hang up. A second call does nothing."""
        self.sound = False
        self._writer.close()

    async def wait_closed(self) -> None:
        """Wait until the stream is closed, which ``close`` has begun."""
        with suppress(OSError):  # the other side has hung up first
            await self._writer.wait_closed()
