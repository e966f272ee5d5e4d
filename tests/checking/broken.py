"""The zoo: one environment for each fault, otherwise as good as ``Code``, and the check that must catch it."""

import os
import random
import threading
import time
from typing import Any

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


CAUGHT_BY: dict[type[Env] | type[AsyncEnv], str] = {
    GlobalRandom: "global-generators",
    GlobalNumPy: "global-generators",
    GlobalReseeded: "global-generators",
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
}
"""Every animal and the one check that must bite."""
