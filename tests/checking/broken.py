"""The zoo: one environment for each fault, otherwise as good as ``Code``, and the check that must catch it."""

import asyncio
import base64
import codecs
import os
import random
import threading
import time
from typing import Any, ClassVar

import numpy as np
from tests.checking.good import Code, Mute, Parity, Patient

import palestra
from palestra import AsyncEnv, Env, Step, Task

Start = tuple[Any, dict[str, Any]]


class GlobalRandom(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        _, info = super().reset(seed=seed, task=task)
        return f"Find the code. Today's lucky number is {random.randint(0, 10**6)}.", info


class GlobalNumPy(Code):
    def step(self, action: str) -> Step:
        np.random.random()
        return super().step(action)


class GlobalReseeded(Code):
    """Deterministic, at the price of everybody else's randomness."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        start = super().reset(seed=seed, task=task)
        random.seed(self.task.seed)
        return start


class HashOrder(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        _, info = super().reset(seed=seed, task=task)
        return f"Find the code. Never say {', '.join({'apple', 'birch', 'cedar', 'daisy', 'elder', 'grape'})}.", info


class Clock(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        _, info = super().reset(seed=seed, task=task)
        return f"It is {time.perf_counter_ns()}. Find the code.", info


class Remembers(Code):
    """An attribute survives the reset."""

    def __init__(self) -> None:
        self.mine: list[str] = []

    def step(self, action: str) -> Step:
        self.mine.append(action)
        step = super().step(action)
        return step._replace(observation=f"{step.observation} You said {len(self.mine)} things.")


class Perturbed(Code):
    def sample_random_action(self) -> str:
        return f"\\boxed{{{int(self.rng.integers(1000, 10000))}}}"


class OracleDraws(Code):
    def oracle(self) -> str:
        self.rng.integers(10)
        return f"\\boxed{{{self.code}}}" if self.turn else "\\boxed{0}"


class OracleFails(Code):
    def oracle(self) -> str:
        return f"\\boxed{{{int(self.code) + (int(self.code) % 7 == 0)}}}"


class OracleBelowCeiling(Code):
    ceiling = 0.9

    def oracle(self) -> str:
        return f"\\boxed{{{int(self.code) + int(self.code) % 2}}}"


class OracleAboveCeiling(Code):
    ceiling = 0.5


class OracleSilent(Code):
    def oracle(self) -> Any:
        return None


class OracleRaises(Code):
    def oracle(self) -> str:
        raise KeyError("no \x00plan\u202e")


class AnswerShown(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        _, info = super().reset(seed=seed, task=task)
        return f"Find the code of four digits. (debug: code={self.code}, tries 0)", info


class ConstantWins(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        start = super().reset(seed=seed, task=task)
        if self.rng.random() < 0.3:
            self.code = "1234"
        return start


class GarbagePays(Code):
    def step(self, action: str) -> Step:
        if palestra.grading.last_boxed(action) is None:
            return Step("Well tried.", 0.3, True, False, {"success": False})
        return super().step(action)


class OutOfRange(Code):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(reward=1.5 * step.reward)


class NotANumber(Code):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(reward=float("nan")) if step.truncated else step


class BothFlags(Code):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(truncated=self.turn == 3, terminated=step.terminated or self.turn == 3)


class SwappedFields(Code):
    def step(self, action: str) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, int(terminated), int(truncated), info


class RaisesOnEmpty(Code):
    def step(self, action: str) -> Step:
        if not action[0].isspace():
            return super().step(action)
        return super().step("")


class RaisesOnStrangeDigits(Code):
    def step(self, action: str) -> Step:
        answer = palestra.grading.last_boxed(action)
        if answer and answer.isdigit():
            int(answer[:20])
        return super().step(action)


class RaisesOnGarbage(Mute):
    def step(self, action: str) -> Step:
        raise ValueError("what?")


class Quadratic(Code):
    """Copies the rest of the text again and again. Stands for a pattern that tracks back."""

    def step(self, action: str) -> Step:
        rest = action
        while rest.startswith(" "):
            rest = rest[1:]
        return super().step(action)


class LiveInfo(Code):
    def step(self, action: str) -> Step:
        return super().step(action)._replace(info={"success": self.turn < 3 or None, "self": object()})


class ListObservation(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        _, info = super().reset(seed=seed, task=task)
        return ["Find", "the code"], info


class NoObservation(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        _, info = super().reset(seed=seed, task=task)
        return None, info


class SharedFork(Code):
    def fork(self) -> Env:
        twin = SharedFork.__new__(SharedFork)
        twin.__dict__.update(self.__dict__)
        return twin


class RaisingFork(Code):
    def fork(self) -> Env:
        raise RuntimeError("not today")


class CloseOnce(Code):
    closed = False

    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class AsyncCloseOnce(Patient):
    closed = False

    async def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        self.closed = True


class CloseNeedsReset(Code):
    def close(self) -> None:
        del self.code


class EndsLate(Code):
    counts_turns = True

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        observation, _ = super().reset(seed=seed, task=task)
        return observation, {"max_turns": 2}


class NeverEnds(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        observation, _ = super().reset(seed=seed, task=task)
        return observation, {}

    def step(self, action: str) -> Step:
        return super().step(action)._replace(truncated=False)


class SlowStep(Parity):
    floor = 0.5

    def step(self, action: str) -> Step:
        if action in ("\\boxed{even}", "\\boxed{odd}"):
            time.sleep(0.12)
        return super().step(action)


class Overlap(Code):
    """The class holds what belongs to an episode."""

    current = ""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        start = super().reset(seed=seed, task=task)
        Overlap.current = self.code
        return start

    def step(self, action: str) -> Step:
        self.code = Overlap.current
        return super().step(action)

    def oracle(self) -> str:
        return f"\\boxed{{{Overlap.current}}}"


PRESENT = {"code": ""}


class ModuleOverlap(Code):
    """The module holds what belongs to an episode."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        start = super().reset(seed=seed, task=task)
        PRESENT["code"] = self.code
        return start

    def oracle(self) -> str:
        return f"\\boxed{{{PRESENT['code']}}}"


class SharedList(Code):
    """A mutable default on the class, which shows."""

    said: ClassVar[list[str]] = []

    def step(self, action: str) -> Step:
        self.said.append(action)
        step = super().step(action)
        return step._replace(observation=f"{step.observation} {len(self.said)} things were said.")


class BlocksTheLoop(Patient):
    async def step(self, action: str) -> Step:
        time.sleep(0.12)  # noqa: ASYNC251 - it blocks the event loop on purpose
        return await super().step(action)


class BlocksInATask(Patient):
    async def step(self, action: str) -> Step:
        await asyncio.gather(self._wait())
        return await super().step(action)

    async def _wait(self) -> None:
        time.sleep(0.12)  # noqa: ASYNC251 - it blocks the event loop on purpose


class SetInInfo(Code):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(info={**step.info, "seen": {"a", "b"}})


class NumPyInInfo(Code):
    def step(self, action: str) -> Step:
        step = super().step(action)
        return step._replace(info={**step.info, "parts": [{"share": np.float32(0.5)}]})


class NumberedInfo(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        observation, info = super().reset(seed=seed, task=task)
        return observation, {**info, "places": {1: "a"}}


class FourTuple(Code):
    def step(self, action: str) -> Any:
        observation, reward, terminated, _, info = super().step(action)
        return observation, reward, terminated, info


class OldReset(Code):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()[0]


class NoSuper(Code):
    """Draws from a generator of its own, as a seed that is None makes it: the task says which episode it is."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        self.code, self.turn = str(np.random.default_rng(seed).integers(1000, 10000)), 0
        return "Find the code.", {"max_turns": 3}


class NoSuperButRng(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        self.code, self.turn = str(self.rng.integers(1000, 10000)), 0
        return "Find the code.", {"max_turns": 3}


class NoSuperButTask(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        self.code, self.turn = str(self.task.seed + 1000), 0
        return "Find the code.", {"max_turns": 3}


class KeepsFile(Code):
    """Closed neither by the next reset nor by close: the file lives as long as the instance."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        self.file = open(os.devnull)  # noqa: SIM115
        return super().reset(seed=seed, task=task)

    def fork(self) -> Env:
        raise palestra.errors.Unsupported("files cannot be copied")


class DropsFile(Code):
    """Opened in each reset and never closed: Python closes it, and complains."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        open(os.devnull).read()  # noqa: SIM115
        return super().reset(seed=seed, task=task)


LEFT_OPEN: list[int] = []
LEFT_WAITING: list[tuple[threading.Event, threading.Thread]] = []


class LeaksFile(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        LEFT_OPEN.append(os.open(os.devnull, os.O_RDONLY))
        return super().reset(seed=seed, task=task)


class LeaksThread(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        over = threading.Event()
        thread = threading.Thread(target=over.wait, daemon=True)
        thread.start()
        LEFT_WAITING.append((over, thread))
        return super().reset(seed=seed, task=task)


class RaisingReset(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        super().reset(seed=seed, task=task)
        raise RuntimeError("no board today")


class RaisingInit(Code):
    def __init__(self) -> None:
        raise RuntimeError("no engine")


def clean_up() -> None:
    """Take back what the leaking ones left."""
    while LEFT_OPEN:
        os.close(LEFT_OPEN.pop())
    while LEFT_WAITING:
        over, thread = LEFT_WAITING.pop()
        over.set()
        thread.join()


class AsyncGlobal(Patient):
    async def step(self, action: str) -> Step:
        random.random()
        return await super().step(action)


class GlobalAnswer(Code):
    """Every task that is played from the same state of the global generator has the same answer."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        start = super().reset(seed=seed, task=task)
        self.code = str(random.randint(1000, 9999))
        return start


class OneAnswer(Code):
    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        start = super().reset(seed=seed, task=task)
        self.code = "1234"
        return start


class LastMoveCommon(Env):
    """Three moves, the last of which is one of two: one text, said each time, wins a fifth of the tasks."""

    reward_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        super().reset(seed=seed, task=task)
        easy = self.rng.random() < 0.2
        last = str(self.rng.choice(["left", "right"]))
        self.path = ["left"] * 3 if easy else [str(self.rng.choice(["up", "down"])), "ahead", last]
        self.turn = 0
        return "Three doors. Say where to go.", {"max_turns": 3}

    def step(self, action: str) -> Step:
        right = action == self.path[self.turn]
        self.turn += 1
        won = right and self.turn == 3
        return Step("Go on.", float(won), won or not right, False, {"success": won})

    def oracle(self) -> str:
        return self.path[self.turn]


class Triple(Env):
    """Three digits to find at once. Nothing tells them, unless ``leaked`` does."""

    reward_range = (0.0, 1.0)

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        super().reset(seed=seed, task=task)
        self.digits = [int(digit) for digit in self.rng.integers(10, size=3)]
        self.answer = self.spelled()
        return f"Find the secret, such as \\boxed{{1 2 3}}. {self.leaked()}", {"max_turns": 1}

    def spelled(self) -> str:
        return " ".join(map(str, self.digits))

    def leaked(self) -> str:
        return ""

    def step(self, action: str) -> Step:
        right = palestra.grading.last_boxed(action) == self.answer
        return Step("", float(right), True, False, {"success": right})

    def oracle(self) -> str:
        return f"\\boxed{{{self.answer}}}"


NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class LeaksVerbatim(Triple):
    def leaked(self) -> str:
        return f"debug: {self.answer}"


class LeaksList(Triple):
    def leaked(self) -> str:
        return f"code {self.digits}"


class LeaksTuple(Triple):
    def leaked(self) -> str:
        return f"state={tuple(map(str, self.digits))}"


class LeaksDashes(Triple):
    def leaked(self) -> str:
        return f"key {'-'.join(map(str, self.digits))}"


class LeaksJoined(Triple):
    def leaked(self) -> str:
        return f"id #{''.join(map(str, self.digits))}"


class LeaksFullWidth(Triple):
    def leaked(self) -> str:
        return f"code {self.answer.translate({ord(str(digit)): chr(0xFF10 + digit) for digit in range(10)})}"


class LeaksWords(Triple):
    def leaked(self) -> str:
        return f"spoken: {' '.join(NAMES[digit] for digit in self.digits)}"


class LeaksBackward(Triple):
    def leaked(self) -> str:
        return f"from the right: {self.answer[::-1]}"


class LeaksBase64(Triple):
    def leaked(self) -> str:
        return f"token {base64.b64encode(self.answer.encode()).decode()}"


class LeaksHexadecimal(Triple):
    def leaked(self) -> str:
        return f"hash {self.answer.encode().hex()}"


class Word(Triple):
    """The same with a word."""

    def spelled(self) -> str:
        return "".join("bcdfghjklm"[digit] + "aeiou"[digit % 5] for digit in self.digits)


class LeaksCapitals(Word):
    def leaked(self) -> str:
        return f"WORD: {self.answer.upper()}"


class LeaksSpacedLetters(Word):
    def leaked(self) -> str:
        return f"letters: {' '.join(self.answer)}"


class LeaksRot13(Word):
    def leaked(self) -> str:
        return f"cipher {codecs.encode(self.answer, 'rot13')}"


class RenderRaises(Code):
    """Nothing to show before the first turn."""

    def render(self) -> str:
        return f"<p>{self.tried[-1]}</p>"


class RenderChanges(Code):
    def render(self) -> str:
        self.turn += 1
        return "<p></p>"


class RenderGivesNothing(Code):
    def render(self) -> Any:
        return None


LEAKS: tuple[type[Env], ...] = (
    LeaksVerbatim,
    LeaksList,
    LeaksTuple,
    LeaksDashes,
    LeaksJoined,
    LeaksFullWidth,
    LeaksWords,
    LeaksBackward,
    LeaksBase64,
    LeaksHexadecimal,
    LeaksCapitals,
    LeaksSpacedLetters,
    LeaksRot13,
)
"""One answer in many spellings."""

CAUGHT_BY: dict[type[Env] | type[AsyncEnv], str] = {
    GlobalRandom: "global-generators",
    GlobalNumPy: "global-generators",
    GlobalReseeded: "global-generators",
    AsyncGlobal: "global-generators",
    OneAnswer: "constant-answer",
    LastMoveCommon: "constant-answer",
    HashOrder: "same-elsewhere",
    Clock: "same-here",
    Remembers: "same-here",
    Perturbed: "same-on-replay",
    OracleDraws: "same-on-replay",
    OracleFails: "oracle-solves",
    OracleBelowCeiling: "oracle-solves",
    OracleAboveCeiling: "oracle-solves",
    OracleSilent: "episodes-run",
    OracleRaises: "episodes-run",
    RaisingReset: "episodes-run",
    RaisingInit: "episodes-run",
    AnswerShown: "answer-hidden",
    ConstantWins: "constant-answer",
    Parity: "constant-answer",
    GarbagePays: "blind-answers",
    OutOfRange: "reward",
    NotANumber: "reward",
    BothFlags: "one-end",
    SwappedFields: "one-end",
    RaisesOnEmpty: "any-text",
    RaisesOnStrangeDigits: "any-text",
    RaisesOnGarbage: "any-text",
    Quadratic: "any-text",
    LiveInfo: "info",
    ListObservation: "observation",
    NoObservation: "observation",
    SharedFork: "fork",
    RaisingFork: "fork",
    CloseOnce: "close",
    AsyncCloseOnce: "close",
    CloseNeedsReset: "close",
    EndsLate: "ends",
    NeverEnds: "ends",
    SlowStep: "quick",
    LeaksFile: "nothing-left",
    LeaksThread: "nothing-left",
    KeepsFile: "nothing-left",
    DropsFile: "nothing-left",
    Overlap: "side-by-side",
    ModuleOverlap: "side-by-side",
    SharedList: "same-here",
    BlocksTheLoop: "quick",
    BlocksInATask: "quick",
    SetInInfo: "info",
    NumPyInInfo: "info",
    NumberedInfo: "info",
    FourTuple: "episodes-run",
    OldReset: "episodes-run",
    NoSuper: "episodes-run",
    NoSuperButRng: "episodes-run",
    NoSuperButTask: "episodes-run",
}
CAUGHT_BY |= dict.fromkeys(LEAKS, "answer-hidden")
CAUGHT_BY |= dict.fromkeys((RenderRaises, RenderChanges, RenderGivesNothing), "render")
"""Every animal and the one check that must bite."""
