"""Answers that need no solving score at most the declared floor, and answers with NaN or infinity score 0."""

import math
import time
from importlib.util import find_spec
from typing import Any

import pytest
from tests.suite.reasoning.attacks import NAMES, attacks, scores

from palestra.suite.reasoning import library
from palestra.suite.reasoning.ids import FLOORS, SLOW
from palestra.suite.reasoning.question import Reasoning
from palestra.suite.reasoning.scorers import SCORERS
from palestra.trajectory import Task

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")

REPAIRED = ["complex_arithmetic", *sorted(SCORERS)]
COMPLEX = [{"name": "complex_arithmetic", "weight": 1.0, "config": {}}]
COSTLY = {"intermediate_integration"}
"""Sympy takes minutes to compare all attacks with one integral: its floor is measured by hand."""
NOT_FINITE = [
    *("nan", "-nan", "NaN", "inf", "-inf", "Infinity", "nan+nani", "infi", "1e999", "nanj", "sNaN", "(nan)", "nan%"),
    *("[nan]", "1e9_9_9", "1e9,99", "1e-999"),
]


def beyond(name: str, tasks: int) -> dict[str, float]:
    """The attacks whose mean is above the floor by more than four standard errors."""
    floor = FLOORS.get(name, 0.0)
    margin = 4 * math.sqrt(max(floor * (1 - floor), 0.01) / tasks)
    means = scores(name, range(5000, 5000 + tasks), others=2 if name in SLOW else 12)
    return {attack: mean for attack, mean in means.items() if mean > floor + margin}


@pytest.mark.parametrize("name", REPAIRED)
@pytest.mark.slow
def test_no_attack_beats_the_floor_of_a_repaired_generator(name: str) -> None:
    assert beyond(name, 40) == {}
    assert FLOORS.get(name, 0.0) < 0.6


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [name for name in NAMES if name not in REPAIRED and name not in COSTLY])
def test_no_attack_beats_the_floor(name: str) -> None:
    assert beyond(name, 4 if name in SLOW else 25) == {}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SLOW])
def test_what_is_no_number_scores_nothing(name: str) -> None:
    config: dict[str, Any] = {"datasets": COMPLEX} if name == "composite" else {}
    env = Reasoning(name, **config)
    env.reset(task=Task(f"rg:{name}", 1))
    for answer in NOT_FINITE:
        assert library.score(name, env._settings, env._entry, answer) == 0.0


RIGHT = ["0.3125", "5/16", "10/32", "31.25%", "31.25\\%", "0.313", "0.312", "0.31250", " 5/16 "]
WRONG = ["0", "0.3", "0.31", "0.000", "0.311", "1", "0.3126", "", "1/0", "5:16", "0.3124999", "-0.3125", "3.125", "nan"]


@pytest.mark.parametrize(("answer", "score"), [*((answer, 1.0) for answer in RIGHT), *((answer, 0.0) for answer in WRONG)])
def test_a_probability_is_exact_or_rounded_to_three_digits(answer: str, score: float) -> None:
    entry = library.draw("coin_flip", {}, 1)
    assert entry["answer"] == "0.3125"
    assert library.score("coin_flip", {}, entry, answer) == score


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "answer",
    [
        "1e-999999999",
        "1e999999999",
        "1E-99_99_99_999",
        "1e-9,9,9,9,9,9,9,9,9",
        "1e-9\\9\\9\\9\\9\\9\\9\\9\\9",
        "3" * 40_000,
        "." * 40_000,
    ],
)
def test_a_probability_of_many_digits_costs_nothing(answer: str) -> None:
    entry = library.draw("coin_flip", {}, 1)
    began = time.process_time()
    assert library.score("coin_flip", {}, entry, answer) == 0.0
    assert SCORERS["coin_flip"](answer, entry) == 0.0, "the scorer itself, whatever is kept from it"
    assert time.process_time() - began < 5


def test_an_island_is_solved_whole() -> None:
    entry = library.draw("knights_knaves", {}, 1)
    right = entry["answer"]
    assert library.score("knights_knaves", {}, entry, right) == 1.0
    assert library.score("knights_knaves", {}, entry, " AND ".join(right.rstrip(".").split(" and ")[::-1]).lower()) == 1.0
    assert library.score("knights_knaves", {}, entry, right.replace("a hero.", "a villain.")) == 0.0
    tried = dict(attacks(entry["question"]))
    assert {"example with the first choice", "example with the second choice", "line -1", "number 0"} <= set(tried)
