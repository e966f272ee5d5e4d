"""The zoo: one environment for each fault, otherwise as good as ``Code``, and the check that must catch it."""

import asyncio
import base64
import codecs
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from tests.checking.good import Code, Mute, Parity, Patient, Quiz

import palestra
from palestra import AsyncEnv, Env, Step, Task

Start = tuple[Any, dict[str, Any]]

CAUGHT_BY: dict[type[Env] | type[AsyncEnv], str] = {}
"""Every animal and the one check that must bite."""


def add(check: str, name: str, base: type[Any] = Code, **members: Any) -> None:
    """Add an animal to the zoo, under its name: other processes import it from here."""
    globals()[name] = animal = type(name, (base,), {"__module__": __name__, **members})
    CAUGHT_BY[animal] = check


def start(change: Callable[[Any, Any, dict[str, Any]], Start]) -> Any:
    """Return ``reset()`` of ``Code`` with what it returns changed by ``change(env, observation, info)``."""

    def reset(self: Code, *, seed: int | None = None, task: Task | None = None) -> Start:
        return change(self, *Code.reset(self, seed=seed, task=task))

    return reset


def doing(do: Callable[[Any], object]) -> Any:
    """Return ``reset()`` of ``Code`` that does something else too."""

    def reset(self: Code, *, seed: int | None = None, task: Task | None = None) -> Start:
        begun = Code.reset(self, seed=seed, task=task)
        do(self)
        return begun

    return reset


def say(text: Callable[[Any], Any]) -> Any:
    """Return ``reset()`` with another observation."""
    return start(lambda env, _, info: (text(env), info))


def then(change: Callable[[Any, Step], Any]) -> Any:
    """Return ``step()`` of ``Code`` with its result changed."""
    return lambda self, action: change(self, Code.step(self, action))


def first(do: Callable[[Any, str], Any], base: type[Env] = Code) -> Any:
    """Return ``step()`` that does something before its class takes the action, or another one that ``do`` returns."""

    def step(self: Env, action: str) -> Step:
        other = do(self, action)
        return base.step(self, other if isinstance(other, str) else action)

    return step


def raising(error: Exception) -> Any:
    def method(self: Env, *_: Any) -> Any:
        raise error

    return method


def boxed(answer: Any) -> str:
    return f"\\boxed{{{answer}}}"


# ------------------------------------------------------------------------------------------------- randomness and sameness

DRAWN = "global-generators"
add(DRAWN, "GlobalRandom", reset=say(lambda env: f"Find the code. Today's lucky number is {random.randint(0, 10**6)}."))
add(DRAWN, "GlobalNumPy", step=first(lambda env, _: np.random.random()))
add(DRAWN, "GlobalReseeded", reset=doing(lambda env: random.seed(env.task.seed)))


class AsyncGlobal(Patient):
    async def step(self, action: str) -> Step:
        random.random()
        return await super().step(action)


CAUGHT_BY[AsyncGlobal] = DRAWN


class GlobalAnswer(Code):
    """Every task that is played from the same state of the global generator has the same answer."""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        begun = super().reset(seed=seed, task=task)
        self.code = str(random.randint(1000, 9999))
        return begun


WORDS = {"apple", "birch", "cedar", "daisy", "elder", "grape"}
add("same-elsewhere", "HashOrder", reset=say(lambda env: f"Find the code. Never say {', '.join(set(WORDS))}."))
add("same-here", "Clock", reset=say(lambda env: f"It is {time.perf_counter_ns()}. Find the code."))


def counting(said: Callable[[Any], list[str]]) -> Any:
    """Return ``step()`` that tells how much was said, from a list that outlives the episode."""

    def step(self: Code, action: str) -> Step:
        said(self).append(action)
        step = Code.step(self, action)
        return step._replace(observation=f"{step.observation} {len(said(self))} things were said.")

    return step


add("same-here", "Remembers", __init__=lambda self: setattr(self, "mine", []), step=counting(lambda env: env.mine))
add("same-here", "SharedList", said=[], step=counting(lambda env: type(env).said))
add("same-on-replay", "Perturbed", sample_random_action=lambda self: boxed(int(self.rng.integers(1000, 10000))))
add("same-on-replay", "OracleDraws", oracle=lambda self: self.rng.integers(10) * 0 or boxed(self.code if self.turn else 0))

PRESENT = {"code": ""}
"""A module that holds what belongs to an episode."""
SEEN = doing(lambda env: PRESENT.update(code=env.code))
add("side-by-side", "ModuleOverlap", reset=SEEN, oracle=lambda self: boxed(PRESENT["code"]))


class Overlap(Code):
    """The class holds what belongs to an episode."""

    current = ""

    def reset(self, *, seed: int | None = None, task: Task | None = None) -> Start:
        begun = super().reset(seed=seed, task=task)
        Overlap.current = self.code
        return begun

    def step(self, action: str) -> Step:
        self.code = Overlap.current
        return super().step(action)

    def oracle(self) -> str:
        return boxed(Overlap.current)


CAUGHT_BY[Overlap] = "side-by-side"

# -------------------------------------------------------------------------------------------------------------- the contract

RUNS = "episodes-run"
add(RUNS, "OracleSilent", oracle=lambda self: None)
add(RUNS, "OracleRaises", oracle=raising(KeyError("no \x00plan\u202e")))
add(RUNS, "RaisingReset", reset=doing(lambda env: 1 / 0))
add(RUNS, "RaisingInit", __init__=raising(RuntimeError("no engine")))
add(RUNS, "FourTuple", step=then(lambda env, step: (step.observation, step.reward, step.terminated, step.info)))
add(RUNS, "OldReset", reset=lambda self: Code.reset(self)[0])


def alone(code: Callable[[Any, int | None], Any]) -> Any:
    """Return ``reset()`` that does not call the one of its base."""

    def reset(self: Any, *, seed: int | None = None, task: Task | None = None) -> Start:
        self.code, self.turn = str(code(self, seed)), 0
        return "Find the code.", {"max_turns": 3}

    return reset


# A seed that is None makes a generator of its own: the task says which episode it is.
add(RUNS, "NoSuper", reset=alone(lambda env, seed: np.random.default_rng(seed).integers(1000, 10000)))
add(RUNS, "NoSuperButRng", reset=alone(lambda env, _: env.rng.integers(1000, 10000)))
add(RUNS, "NoSuperButTask", reset=alone(lambda env, _: env.task.seed + 1000))

add("reward", "OutOfRange", step=then(lambda env, step: step._replace(reward=1.5 * step.reward)))
add("reward", "NotANumber", step=then(lambda env, step: step._replace(reward=float("nan")) if step.truncated else step))
BOTH = then(lambda env, step: step._replace(truncated=env.turn == 3, terminated=step.terminated or env.turn == 3))
add("one-end", "BothFlags", step=BOTH)
add("one-end", "SwappedFields", step=then(lambda env, step: (*step[:2], int(step[2]), int(step[3]), step[4])))
LIVE = then(lambda env, step: step._replace(info={"success": env.turn < 3 or None, "self": object()}))
add("info", "LiveInfo", step=LIVE)
add("info", "SetInInfo", step=then(lambda env, step: step._replace(info={**step.info, "seen": {"a", "b"}})))
add(
    "info", "NumPyInInfo", step=then(lambda env, step: step._replace(info={**step.info, "parts": [{"share": np.float32(0.5)}]}))
)
add("info", "NumberedInfo", reset=start(lambda env, text, info: (text, {**info, "places": {1: "a"}})))
add("observation", "ListObservation", reset=say(lambda env: ["Find", "the code"]))
add("observation", "NoObservation", reset=say(lambda env: None))
add("ends", "EndsLate", counts_turns=True, reset=start(lambda env, text, info: (text, {"max_turns": 2})))
ENDLESS = then(lambda env, step: step._replace(truncated=False))
add("ends", "NeverEnds", reset=start(lambda env, text, info: (text, {})), step=ENDLESS)

# -------------------------------------------------------------------------------------------------------- oracle and answers

add("oracle-solves", "OracleFails", oracle=lambda self: boxed(int(self.code) + (int(self.code) % 7 == 0)))
add("oracle-solves", "OracleBelowCeiling", ceiling=0.9, oracle=lambda self: boxed(int(self.code) + int(self.code) % 2))
add("oracle-solves", "OracleAboveCeiling", ceiling=0.5)


def code(chosen: Callable[[Any], str | None]) -> Any:
    """Return ``reset()`` with another code, if ``chosen`` returns one."""
    return doing(lambda env: setattr(env, "code", chosen(env) or env.code))


CONSTANT = "constant-answer"
add(CONSTANT, "OneAnswer", reset=code(lambda env: "1234"))
add(CONSTANT, "ConstantWins", reset=code(lambda env: "1234" if env.rng.random() < 0.3 else None))
CAUGHT_BY[Parity] = CONSTANT


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


CAUGHT_BY[LastMoveCommon] = CONSTANT


class GarbagePays(Code):
    def step(self, action: str) -> Step:
        if palestra.grading.last_boxed(action) is None:
            return Step("Well tried.", 0.3, True, False, {"success": False})
        return super().step(action)


CAUGHT_BY[GarbagePays] = "blind-answers"


def digits(env: Code, action: str) -> None:
    answer = palestra.grading.last_boxed(action)
    if answer and answer.isdigit():
        int(answer[:20])


def strip(env: Code, rest: str) -> None:
    """Copy the rest of the text again and again. Stands for a pattern that tracks back."""
    while rest.startswith(" "):
        rest = rest[1:]


add("any-text", "RaisesOnEmpty", step=first(lambda env, action: "" if action[0].isspace() else action))
add("any-text", "RaisesOnStrangeDigits", step=first(digits))
add("any-text", "RaisesOnGarbage", Mute, step=raising(ValueError("what?")))
add("any-text", "Quadratic", step=first(strip))

SHOWN = "answer-hidden"
add(SHOWN, "AnswerShown", reset=say(lambda env: f"Find the code of four digits. (debug: code={env.code}, tries 0)"))
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Triple(Quiz):
    """Three digits to find at once. Nothing tells them, unless ``leaked`` does."""

    reward_range = (0.0, 1.0)

    def ask(self) -> str:
        self.digits = [int(digit) for digit in self.rng.integers(10, size=3)]
        self.answer = self.spelled()
        return f"Find the secret, such as \\boxed{{1 2 3}}. {self.leaked()}"

    def spelled(self) -> str:
        return " ".join(map(str, self.digits))

    def leaked(self) -> str:
        return ""


class Word(Triple):
    """The same with a word."""

    def spelled(self) -> str:
        return "".join("bcdfghjklm"[digit] + "aeiou"[digit % 5] for digit in self.digits)


def wide(text: str) -> str:
    return text.translate({ord(str(digit)): chr(0xFF10 + digit) for digit in range(10)})


LEAKS: dict[str, Callable[[Any], str]] = {
    "LeaksVerbatim": lambda env: f"debug: {env.answer}",
    "LeaksList": lambda env: f"code {env.digits}",
    "LeaksTuple": lambda env: f"state={tuple(map(str, env.digits))}",
    "LeaksDashes": lambda env: f"key {'-'.join(map(str, env.digits))}",
    "LeaksJoined": lambda env: f"id #{''.join(map(str, env.digits))}",
    "LeaksFullWidth": lambda env: f"code {wide(env.answer)}",
    "LeaksWords": lambda env: f"spoken: {' '.join(NAMES[digit] for digit in env.digits)}",
    "LeaksBackward": lambda env: f"from the right: {env.answer[::-1]}",
    "LeaksBase64": lambda env: f"token {base64.b64encode(env.answer.encode()).decode()}",
    "LeaksHexadecimal": lambda env: f"hash {env.answer.encode().hex()}",
}
WORD_LEAKS: dict[str, Callable[[Any], str]] = {
    "LeaksCapitals": lambda env: f"WORD: {env.answer.upper()}",
    "LeaksSpacedLetters": lambda env: f"letters: {' '.join(env.answer)}",
    "LeaksRot13": lambda env: f"cipher {codecs.encode(env.answer, 'rot13')}",
}
"""One answer in many spellings."""
for base, leaks in ((Triple, LEAKS), (Word, WORD_LEAKS)):
    for name, leaked in leaks.items():
        add(SHOWN, name, base, leaked=leaked)

# ------------------------------------------------------------------------------------------------ time, forks, what is left

SLEEP = 0.12
ANSWERS = ("\\boxed{even}", "\\boxed{odd}")
add(
    "quick", "SlowStep", Parity, floor=0.5, step=first(lambda env, said: time.sleep(SLEEP) if said in ANSWERS else None, Parity)
)


class BlocksTheLoop(Patient):
    async def step(self, action: str) -> Step:
        time.sleep(SLEEP)  # noqa: ASYNC251 - it blocks the event loop on purpose
        return await super().step(action)


class BlocksInATask(Patient):
    async def step(self, action: str) -> Step:
        await asyncio.gather(self._wait())
        return await super().step(action)

    async def _wait(self) -> None:
        time.sleep(SLEEP)  # noqa: ASYNC251 - it blocks the event loop on purpose


CAUGHT_BY |= dict.fromkeys((BlocksTheLoop, BlocksInATask), "quick")


def twin(self: Code) -> Env:
    other = type(self).__new__(type(self))
    other.__dict__.update(self.__dict__)
    return other


def turning(self: Any) -> str:
    self.turn += 1
    return "<p></p>"


def close_once(self: Any) -> None:
    if self.closed:
        raise RuntimeError("closed already")
    self.closed = True


async def async_close_once(self: Any) -> None:
    close_once(self)


add("fork", "SharedFork", fork=twin)
add("fork", "RaisingFork", fork=raising(RuntimeError("not today")))
add("close", "CloseOnce", closed=False, close=close_once)
add("close", "AsyncCloseOnce", Patient, closed=False, close=async_close_once)
add("close", "CloseNeedsReset", close=lambda self: delattr(self, "code"))
add("render", "RenderRaises", render=lambda self: f"<p>{self.tried[-1]}</p>")  # nothing to show before the first turn
add("render", "RenderChanges", render=turning)
add("render", "RenderGivesNothing", render=lambda self: None)

LEFT = "nothing-left"
LEFT_OPEN: list[int] = []
LEFT_WAITING: list[tuple[threading.Event, threading.Thread]] = []


def wait() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    LEFT_WAITING.append((over, thread))


def clean_up() -> None:
    """Take back what the leaking ones left."""
    while LEFT_OPEN:
        os.close(LEFT_OPEN.pop())
    while LEFT_WAITING:
        over, thread = LEFT_WAITING.pop()
        over.set()
        thread.join()


NULL = os.devnull
add(LEFT, "LeaksFile", reset=doing(lambda env: LEFT_OPEN.append(os.open(NULL, os.O_RDONLY))))
add(LEFT, "LeaksThread", reset=doing(lambda env: wait()))
# The file of an instance lives as long as it; Python closes the other, and complains.
KEPT = doing(lambda env: setattr(env, "file", open(NULL)))  # noqa: SIM115
add(LEFT, "KeepsFile", reset=KEPT, fork=raising(palestra.errors.Unsupported("files cannot be copied")))
add(LEFT, "DropsFile", reset=doing(lambda env: open(NULL).read()))  # noqa: SIM115

ZOO: dict[str, Any] = {animal.__name__: animal for animal in (*CAUGHT_BY, GlobalAnswer, Triple, Word)}
