r"""Answers that need no solving, and what they score.

An *attack* is a rule that makes an answer from the text of a question alone: a constant, a number of the prompt, its last line,
the example it shows. ``scores`` plays every attack on the same tasks. Run as a script, this file measures the floors of
``palestra.suite.reasoning.ids``:

    python -m tests.suite.reasoning.attacks [NAME…]      # prints one line per generator: its name, the best attack, its mean
"""

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from palestra.suite.reasoning import library
from palestra.suite.reasoning.ids import COMPOSITE, GENERATORS, SLOW
from palestra.suite.reasoning.oracles import right_answer
from palestra.suite.reasoning.question import Reasoning
from palestra.trajectory import Task, text_of

NAMES = sorted(name for names in GENERATORS.values() for name in names.split())

CONSTANTS = [
    *("0", "1", "2", "3", "4", "5", "6", "8", "10", "12", "16", "20", "24", "50", "100", "-1", "0.0", "0.5", "1.0", "1.000"),
    *("nan", "-nan", "inf", "-inf", "nan+nani", "1e999", "1e-999", "1/0", "0/1", "NaN%", "Infinity", "9" * 40),
    *("True", "False", "true", "false", "yes", "no", "Yes", "No", "on", "off", "undetermined", "None", "null", "impossible"),
    *(
        *("[]", "[[]]", "{}", "()", "''", "[0]", "[1]", "[0, 0]", "[[0]]", '{"0": 1}', "A", "B", "a", "x", "P"),
        *("(P ∨ ¬P)", "?", "-"),
    ),
    *("infeasible", "brother", "mother", "Monday", "Sunday", "red", "left", "UP", "L", "A+1", "Q", "U U'", "0:00", "00:00:00"),
    *("0 0", "0 1", "1 2 3", "0 days", "5 days", "50 days", "E5", "D4", " ", "[*]", "TrueFalse", "0 1 2 3 4 5 6 7 8 9"),
]
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|`([^`\n]+)`")
_BRACKETED = re.compile(r"\[[^\[\]]*\]|\{[^{}]*\}|\((?:[^()]|\([^()]*\))*\)")
_CHOICE = re.compile(r"\b(\w+)/(\w+)\b")
_EXAMPLE = re.compile(r"(?i)(?:example|e\.g\.|like|such as|format)[^:\n]{0,60}:\s*(.+)")


def attacks(question: str) -> Iterator[tuple[str, str]]:
    """The name and the answer of every attack on ``question``."""
    for constant in CONSTANTS:
        yield f"constant {constant[:20]}", constant
    yield from _lines(question.strip())
    yield from _places("number", _NUMBER.findall(question), 6)
    yield from _numbers([float(number) for number in _NUMBER.findall(question)[:10_000]])
    yield from _places("quoted", ["".join(parts) for parts in _QUOTED.findall(question)], 6)
    yield from _places("bracketed", _BRACKETED.findall(question), 6)
    yield from _places("word", re.findall(r"\w+", question), 4)
    yield from _places("example", [found.strip(" \"'().") for found in _EXAMPLE.findall(question)], 4)
    for quoted in [*("".join(parts) for parts in _QUOTED.findall(question)), *_EXAMPLE.findall(question)]:
        if _CHOICE.search(quoted):
            yield "example with the first choice", _CHOICE.sub(r"\1", quoted.strip(" \"'()."))
            yield "example with the second choice", _CHOICE.sub(r"\2", quoted.strip(" \"'()."))


def _lines(question: str) -> Iterator[tuple[str, str]]:
    lines = [line.strip() for line in question.split("\n") if line.strip()]
    yield from _places("line", lines, 8)
    yield from _places("line without its number", [re.sub(r"^\W*\d+[.:)]\s*", "", line) for line in lines], 8)
    listed = [match[1] for line in lines if (match := re.match(r"^\W*\d+[.:)]\s*(.+)$", line))]
    yield "all that is listed, joined by ∧", " ∧ ".join(f"({line})" for line in listed)
    yield "after the last colon", question.rpartition(":")[2].strip()
    for place, block in enumerate(question.split("\n\n")[-3:]):
        yield f"block {place - 3}", block.strip()
        for digit in "01":
            yield f"block {place - 3}, every digit {digit}", re.sub(r"\d", digit, block.strip())
            yield f"block {place - 3}, every blank {digit}", re.sub(r"[_.?]", digit, block.strip())
    grid = re.findall(r"\[[\d\s,\[\]]+\]", question)
    for shown in grid[-1:]:
        rows = [re.sub(r"\s+", ", ", row.strip()) for row in re.findall(r"[\d][\d\s,]*", shown)]
        yield "the grid as JSON", f"[{', '.join(f'[{row}]' for row in rows)}]"
        yield "the grid as JSON, empty", re.sub(r"\d+", "0", f"[{', '.join(f'[{row}]' for row in rows)}]")


def _places(what: str, found: list[str], count: int) -> Iterator[tuple[str, str]]:
    for place, text in enumerate(found[:count]):
        yield f"{what} {place}", text
    for place, text in enumerate(reversed(found[-count:]), 1):
        yield f"{what} -{place}", text


def _numbers(numbers: list[float]) -> Iterator[tuple[str, str]]:
    if numbers:
        for name, value in (("largest", max(numbers)), ("smallest", min(numbers))):
            yield f"{name} number", f"{value:g}"
        yield "how many numbers", str(len(numbers))


def scores(name: str, tasks: range, others: int = 12) -> dict[str, float]:
    """The mean of every attack on ``name`` over ``tasks``. The right answers to ``others`` further tasks are constants too."""
    config: dict[str, Any] = {"datasets": COMPOSITE} if name == "composite" else {}
    env = Reasoning(name, **config)
    lent = {}
    for seed in range(10**6, 10**6 + others):
        env.reset(task=Task(f"rg:{name}", seed))
        lent[f"answer to another task {seed % 10**6}"] = right_answer(name, env._entry) or ""
    totals: dict[str, float] = defaultdict(float)
    for seed in tasks:
        question = text_of(env.reset(task=Task(f"rg:{name}", seed))[0])
        asked = question[: question.rindex("\n\nPut your final answer")]
        known: dict[str, float] = {}
        for attack, answer in {**dict(attacks(asked)), **lent}.items():
            if answer not in known:
                known[answer] = library.score(name, config, env._entry, answer)
            totals[attack] += known[answer]
    return {attack: total / len(tasks) for attack, total in totals.items()}


def measured(name: str) -> tuple[str, float]:
    """The best attack on ``name`` and its mean, over as many tasks as the table of floors is measured on."""
    means = scores(name, range(12 if name in SLOW else 200))
    best = max(means, key=lambda attack: means[attack])
    return best, means[best]


if __name__ == "__main__":
    for chosen in sys.argv[1:] or NAMES:
        attack, mean = measured(chosen)
        print(f"{chosen} {mean:.3f} {attack}", flush=True)
