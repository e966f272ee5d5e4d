r"""Whether two mathematical answers are the same.

Most answers are decided here at once: the same text after harmless differences of typing are removed, or two plain numbers.
The rest goes to math-verify, in worker processes with a time limit. One hostile answer costs its own time limit and a worker,
which is replaced before the next question; it cannot poison the pool.
"""

import asyncio
import contextlib
import re
import socket
import subprocess
import sys
from fractions import Fraction
from importlib import util
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from palestra.encoding import clean_text
from palestra.errors import GraderError, MissingExtra

__all__ = ["MathsGrader", "quick_verdict"]

_LONGEST = 4000
"""Characters of an answer that are worth reading."""
_START_SECONDS = 120.0
_STARVED_SECONDS = 30.0
"""How long to wait, in all, for a worker that is not given a core."""
_TYPING = re.compile(r"\\left(?![a-z])|\\right(?![a-z])|\\[,;!:]|\\ |\\displaystyle|\\quad|\s+|\$")
_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,40})?|[-+]?\.\d{1,40}")
_FRACTION = re.compile(r"(-?)\\frac\{(-?\d{1,40})\}\{(-?\d{1,40})\}|()(-?\d{1,40})/(\d{1,40})")


def quick_verdict(answer: str, gold: str) -> bool | None:
    """Whether ``answer`` is ``gold``, where that can be seen without algebra; ``None`` where it cannot."""
    if len(answer) > _LONGEST:
        return False
    said, meant = _plain(answer), _plain(gold)
    if not said:
        return False
    if said == meant:
        return True
    if said[1:2] == "=" and meant[1:2] != "=" and said[0].isalpha():  # x=5 answers 5
        said = said[2:]
    one, other = _numbers(said), _numbers(meant)
    if one is None or other is None or one.around != other.around or len(one.numbers) != len(other.numbers):
        return None
    pairs = [_same_number(*pair) for pair in zip(one.numbers, other.numbers, strict=True)]
    return False if False in pairs else None if None in pairs else True


class _Numbers(NamedTuple):
    """Plain numbers, and what stands around them: nothing, brackets, a percent sign."""

    around: str
    numbers: tuple[Fraction, ...]


def _numbers(text: str) -> _Numbers | None:
    around = ""
    if text.endswith("\\%"):
        text, around = text[:-2], "%"
    elif text[:1] + text[-1:] in ("()", "[]", "(]", "[)") and "," in text:
        around, parts = text[0] + text[-1], text[1:-1].split(",")
        numbers = [number for part in parts if (number := _number(part)) is not None]
        return _Numbers(around, tuple(numbers)) if len(numbers) == len(parts) else None
    number = _number(text)
    return None if number is None else _Numbers(around, (number,))


def _same_number(one: Fraction, other: Fraction) -> bool | None:
    if one == other:
        return True
    # A rounded decimal may stand for a fraction: only clearly different numbers are told apart here.
    clearly = abs(one - other) > Fraction(1, 100) * max(abs(one), abs(other))
    return False if clearly or one.denominator == other.denominator == 1 else None


def _plain(text: str) -> str:
    text = _TYPING.sub("", text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac").replace("−", "-")
    return text.rstrip(".")


def _number(text: str) -> Fraction | None:
    if _NUMBER.fullmatch(text):
        return Fraction(text.replace(",", ""))
    found = _FRACTION.fullmatch(text)
    if found is None:
        return None
    sign, above, below = found.group(1, 2, 3) if found.group(2) else found.group(4, 5, 6)
    return Fraction(int(above), int(below)) * (-1 if sign else 1) if int(below) else None


class _Worker:
    """One socket to one worker after another."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    async def ask(self, gold: str, answer: str, seconds: float) -> str:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(BlockingIOError):
            while self.connection.recv(16):  # words about a worker that died while nobody waited
                pass
        request = msgspec.json.encode((gold, answer))
        await loop.sock_sendall(self.connection, len(request).to_bytes(4, "big") + request)
        async with asyncio.timeout(seconds):
            return (await loop.sock_recv(self.connection, 1)).decode()


class MathsGrader:
    """Compares answers with the help of ``workers`` processes, each answer within ``seconds`` of processor time."""

    def __init__(self, *, workers: int = 2, seconds: float = 0.5) -> None:
        self._count = workers
        self._seconds = seconds
        self._idle: asyncio.Queue[_Worker] = asyncio.Queue()
        self._every: list[_Worker] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = asyncio.Lock()
        self.counts = {"quick": 0, "worker": 0, "timeout": 0, "error": 0}
        """How answers were decided."""

    async def __aenter__(self) -> "MathsGrader":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Start the workers and wait until they serve, which takes as long as importing sympy."""
        async with self._starting:
            if self._process is not None:
                return
            if util.find_spec("math_verify") is None:
                raise MissingExtra('comparing formulas needs math-verify: pip install "palestra[math]"')
            pairs = [socket.socketpair() for _ in range(self._count)]
            theirs = [pair[1] for pair in pairs]
            command = [sys.executable, str(Path(__file__).with_name("maths_worker.py")), str(self._seconds)]
            self._process = subprocess.Popen(
                [*command, *(str(end.fileno()) for end in theirs)],
                env={"PYTHONHASHSEED": "0"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[end.fileno() for end in theirs],
                start_new_session=True,
            )
            for end in theirs:
                end.close()
            self._every = [_Worker(pair[0]) for pair in pairs]
            await self._until_served()

    async def _until_served(self) -> None:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_START_SECONDS):
            for worker in self._every:
                worker.connection.setblocking(False)
                if await loop.sock_recv(worker.connection, 1) != b"R":
                    raise GraderError("the workers that compare formulas did not start")
                self._idle.put_nowait(worker)

    async def equivalent(self, answer: str, gold: str) -> bool:
        """Whether ``answer`` means the same as ``gold``. What cannot be read, or takes too long, does not."""
        quick = quick_verdict(answer, gold)
        if quick is not None:
            self.counts["quick"] += 1
            return quick
        await self.start()
        self.counts["worker"] += 1
        reply = await self._ask(clean_text(gold), clean_text(answer))
        if reply in "TN":
            self.counts["timeout"] += 1
        elif reply == "E":
            self.counts["error"] += 1
        return reply == "1"

    async def _ask(self, gold: str, answer: str) -> str:
        worker = await self._idle.get()
        try:
            reply = await worker.ask(gold, answer, _STARVED_SECONDS)
        except (TimeoutError, ConnectionError):
            reply = ""
        except asyncio.CancelledError:
            # Its answer is still to come, and the next question must not take it for its own.
            self._late(worker)
            raise
        if not reply:
            await self.close()
            raise GraderError("the workers that compare formulas died; they are started again for the next answer")
        self._idle.put_nowait(worker)
        return reply

    def _late(self, worker: _Worker) -> None:
        loop, idle = asyncio.get_running_loop(), self._idle

        def answered() -> None:
            loop.remove_reader(worker.connection)
            idle.put_nowait(worker)

        loop.add_reader(worker.connection, answered)

    async def close(self) -> None:
        """End the workers."""
        process, self._process = self._process, None
        every, self._every = self._every, []
        self._idle = asyncio.Queue()
        for worker in every:
            asyncio.get_running_loop().remove_reader(worker.connection)
            worker.connection.close()
        if process is not None:
            try:
                await asyncio.wait_for(asyncio.to_thread(process.wait), 5.0)
            except TimeoutError:
                process.kill()
