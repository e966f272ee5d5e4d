"""Environments that misbehave in one way each, chosen by the task, and the books they keep."""

import asyncio
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

from palestra import AsyncEnv, Env, Step, Task, Wrapper

FAULTS = ("raise", "hang", "reset", "close")


def fault_of(task: Task) -> str | None:
    """Every twentieth task has each fault: 5 % raise in step, 5 % hang, 5 % fail in reset, 5 % fail in close."""
    return dict(enumerate(FAULTS)).get(task.seed % 20)


class Faulty(Env):
    """Three turns of a little work, unless the task says otherwise. Each close is a line of ``book``."""

    blocking = True

    def __init__(self, faults: bool = True, work: float = 0.01, book: str | None = None) -> None:
        self.faults = faults
        self.work = work
        self.book = book

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.fault = fault_of(self.task) if self.faults else None
        self.turn = 0
        if self.fault == "reset":
            raise RuntimeError("reset went wrong")
        return "go", {"pid": os.getpid()}

    def step(self, action: str) -> Step:
        self.turn += 1
        time.sleep(self.work)
        if self.fault == "raise" and self.turn == 2:
            raise KeyError("step went wrong")
        if self.fault == "hang" and self.turn == 2:
            time.sleep(3600)
        return Step("on", 1.0, self.turn == 3, False, {})

    def close(self) -> None:
        if self.book is not None:
            with open(self.book, "a") as book:
                book.write(f"{self.task.seed}\n")
        if self.fault == "close":
            raise RuntimeError("close went wrong")


class Dying(Faulty):
    """Its process ends in the middle of a step."""

    def step(self, action: str) -> Step:
        os._exit(7)


class DyingOnce(Faulty):
    """Its process ends in the middle of a step, the first time only: ``book`` remembers."""

    def step(self, action: str) -> Step:
        assert self.book is not None
        if not Path(self.book).exists():
            Path(self.book).touch()
            os._exit(7)
        return super().step(action)


class Unbuildable(Env):
    """A blocking environment whose constructor fails."""

    blocking = True

    def __init__(self) -> None:
        raise RuntimeError("cannot be built")

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        raise NotImplementedError

    def step(self, action: str) -> Step:
        raise NotImplementedError


class Slow(Env):
    """A blocking environment that sleeps as long as the action says. It echoes, and remembers how often it was closed."""

    blocking = True

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.turn = 0
        return f"task {self.task.seed}", {"pid": os.getpid()}

    def step(self, action: str) -> Step:
        self.turn += 1
        if action == "exit":
            sys.exit("leaving")
        if action == "interrupt":
            raise KeyboardInterrupt
        if action == "live":
            return Step("on", 0.0, False, False, {"loop": object(), "set": {1}, "kept": 1})
        if action == "wrong":
            return None  # type: ignore[return-value]
        time.sleep(float(action) if action.replace(".", "").isdigit() else 0.0)
        return Step(f"heard {action!r}", 1.0, self.turn == 3, False, {})

    def oracle(self) -> str:
        return "0"

    def sample_random_action(self) -> str:
        return str(self.action_rng.integers(2) / 1000)


class Pooled(AsyncEnv):
    """A costly environment that is kept between episodes. The class keeps the books; ``plan`` says what goes wrong."""

    reusable = True
    built: ClassVar[int] = 0
    closed: ClassVar[int] = 0
    plan: ClassVar[str] = ""
    kind = "an attribute with a name that views use too"

    def __init__(self) -> None:
        type(self).built += 1

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        return "go", {}

    async def step(self, action: str) -> Step:
        if self.plan == "raise":
            raise RuntimeError("step went wrong")
        return Step("", 1.0, True, False, {})

    async def healthy(self) -> bool:
        if self.plan == "hang in healthy":
            await asyncio.sleep(3600)
        if self.plan == "raise in healthy":
            raise RuntimeError("no pulse")
        return self.plan != "ill"

    async def close(self) -> None:
        type(self).closed += 1
        if self.plan == "hang in close":
            await asyncio.sleep(3600)
        if self.plan == "raise in close":
            raise RuntimeError("will not close")

    @classmethod
    def begin(cls, plan: str = "") -> None:
        """Forget earlier tests."""
        cls.built = cls.closed = 0
        cls.plan = plan


class CountCloses(Wrapper):
    """Counts, for each environment that was built, how often the spine closed it."""

    def __init__(self, env: AsyncEnv, book: Counter[int]) -> None:
        super().__init__(env)
        self._book = book
        self._number = len(book)
        book[self._number] = 0

    async def close(self) -> None:
        self._book[self._number] += 1
        await self.env.close()
