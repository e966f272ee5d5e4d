"""Environments that keep the contract, in both colours, with and without the optional verbs."""

import asyncio
import copy
from typing import Any

import palestra
from palestra import AsyncEnv, Env, Step, Task
from palestra.trajectory import Image, Text


class Quiz(Env):
    """A question that is answered once, in a box."""

    answer: str

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return self.ask(), {}

    def ask(self) -> str:
        """Choose the answer, and return the question."""
        raise NotImplementedError

    def step(self, action: str) -> Step:
        right = palestra.grading.last_boxed(action) == self.answer
        return Step("", float(right), True, False, {"success": right})

    def oracle(self) -> str:
        return f"\\boxed{{{self.answer}}}"


class Parity(Quiz):
    """The one of the tutorial: two outcomes, so that chance is worth a half, which it does not say."""

    def ask(self) -> str:
        number = int(self.rng.integers(1000))
        self.answer = "odd" if number % 2 else "even"
        return f"Is {number} even or odd? Answer with \\boxed{{even}} or \\boxed{{odd}}."


class DeclaredParity(Parity):
    """The same, honest about chance."""

    floor = 0.5


class Months(Quiz):
    """Twelve outcomes, so that a constant answer is worth a twelfth, which it does not say."""

    def ask(self) -> str:
        month = int(self.rng.integers(1, 13))
        self.answer = str(month)
        return f"Day {30 * month - 15} of a year of 360 days: which month? \\boxed{{1}} to \\boxed{{12}}."


class Code(Env):
    """Find a code of four digits; each wrong guess is answered by a fresh hint. Everything optional is there."""

    reward_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.code = str(self.rng.integers(1000, 10000))
        self.turn = 0
        self.tried: list[str] = []
        return "Find the code of four digits.", {"max_turns": 3}

    def step(self, action: str) -> Step:
        self.turn += 1
        self.tried.append(action[:20])
        if palestra.grading.last_boxed(action) == self.code:
            return Step("Open.", 1.0, True, False, {"success": True, "tried": len(self.tried)})
        hint = f"No. Digit {int(self.rng.integers(4)) + 1} hurts. Tries: {len(self.tried)}."
        return Step(hint, 0.0, False, self.turn == 3, {"success": False})

    def oracle(self) -> str:
        return f"\\boxed{{{self.code}}}"

    def sample_random_action(self) -> str:
        return f"\\boxed{{{int(self.action_rng.integers(1000, 10000))}}}"

    def fork(self) -> Env:
        return copy.deepcopy(self)


class Gamble(Code):
    """Half of the tasks cannot be won: the lock is jammed. It says so."""

    ceiling = 0.5

    def step(self, action: str) -> Step:
        step = super().step(action)
        if step.terminated and int(self.code) % 2:
            return Step("Jammed.", 0.0, True, False, {"success": False})
        return step


class Patient(AsyncEnv):
    """The async colour, without an oracle or a fork."""

    reward_range = (0.0, 1.0)

    async def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        await super().reset(seed=seed, task=task)
        self.number = int(self.rng.integers(100))
        return "Guess a number below 100.", {}

    async def step(self, action: str) -> Step:
        return Step("", float(palestra.grading.last_boxed(action) == str(self.number)), True, False, {})

    async def sample_random_action(self) -> str:
        return f"\\boxed{{{int(self.action_rng.integers(100))}}}"


class Waits(Patient):
    """Takes its time, and leaves the event loop to others."""

    async def step(self, action: str) -> Step:
        await asyncio.sleep(0.15)
        return await super().step(action)


class Mute(Env):
    """Nothing optional at all, and nothing to win."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        return "Say something.", {}

    def step(self, action: str) -> Step:
        return Step("Thank you.", 0.0, True, False, {})


class Pick(Quiz):
    """The answer is one of the words shown, always at another place: no secret is told."""

    def ask(self) -> str:
        words = ["".join(chr(97 + int(letter)) for letter in self.rng.integers(26, size=6)) for _ in range(5)]
        self.answer = max(words)
        return f"Which of these comes last in the alphabet? {', '.join(words)}"


class Errand(Env):
    """The last command stands in the mission, but is worth nothing before the first one: no secret is told."""

    reward_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed, task=task)
        self.thing = f"thing number {int(self.rng.integers(10000))}"
        self.held = False
        self.turn = 0
        return f"Your errand: bring {self.thing}", {"max_turns": 4}

    def step(self, action: str) -> Step:
        self.turn += 1
        if self.held and action == f"bring {self.thing}":
            return Step("Thank you.", 1.0, True, False, {"success": True})
        self.held = self.held or action == "take it"
        return Step("And now?", 0.0, False, self.turn == 4, {})

    def oracle(self) -> str:
        return f"bring {self.thing}" if self.held else "take it"


class Picture(Code):
    """Shows an image."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> tuple[Any, dict[str, Any]]:
        text, info = super().reset(seed=seed, task=task)
        return (Text(text), Image(self.code.encode())), info


class Talkative(Patient):
    """Prints."""

    async def step(self, action: str) -> Step:
        print("stepping")
        return await super().step(action)


class Heavy(Code):
    """A blocking one."""

    blocking = True
