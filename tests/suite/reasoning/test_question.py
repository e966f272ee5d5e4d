"""The environment on fast generators; ``test_every_environment`` covers all of them."""

import time
from importlib.util import find_spec
from typing import Any

import pytest

import palestra
from palestra.errors import UsageError
from palestra.suite.reasoning import library
from palestra.suite.reasoning.question import Reasoning
from palestra.trajectory import Task

pytestmark = pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")


def test_the_list_of_generators_is_the_librarys() -> None:
    assert {known.id for known in palestra.list_envs("rg:*")} == {f"rg:{name}" for name in library.generator_names()}


def test_a_text_without_a_box_scores_nothing() -> None:
    env = palestra.make("rg:chain_sum")
    env.reset(seed=0)
    step = env.step("it is 12")
    assert (step.reward, step.terminated, step.info) == (0.0, True, {"success": False, "format_error": True})


# difficulty


def test_parameters_and_levels_make_it_harder() -> None:
    def length(**options: Any) -> float:
        env = palestra.make("rg:chain_sum", **options)
        return sum(len(str(env.reset(seed=seed)[0])) for seed in range(30)) / 30

    assert length(min_terms=2, max_terms=2) < length(min_terms=20, max_terms=20)
    assert length(level=0) < length(level=3)


def test_a_task_can_carry_its_own_difficulty() -> None:
    env = palestra.make("rg:chain_sum")
    by_task = env.reset(task=Task("rg:chain_sum", 5, params={"min_terms": 9, "max_terms": 9}))[0]
    assert str(by_task).count("+") + str(by_task).count(" - ") >= 8


@pytest.mark.parametrize("options", [{"level": 99}, {"no_such_knob": 1}, {"min_terms": 5, "max_terms": 2}])
def test_wrong_parameters_are_reported_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="rg:chain_sum"):
        palestra.make("rg:chain_sum", **options)


# scorers that must not be trusted

ATTACKS = [
    "__import__('os').system('touch {file}')",
    "[c for c in open('{file}', 'w').name]",
    "(lambda: open('{file}', 'w'))()",
]
EVALUATING = [
    *("string_insertion", "spiral_matrix", "binary_matrix", "n_queens", "countdown", "simple_integration"),
    *("polynomial_multiplication",),
]


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", EVALUATING)
def test_an_answer_is_never_run(name: str, attack: str, tmp_path: object) -> None:
    mark = f"{tmp_path}/run"
    env = Reasoning(name)
    env.reset(seed=0)
    assert env.step(f"\\boxed{{{attack.format(file=mark)}}}").reward <= 0.05
    with pytest.raises(FileNotFoundError):
        open(mark).close()


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("rush_hour", "A+99999999999"),
        ("rubiks_cube", "R99999999999"),
        ("countdown", "9**9**9**9"),
        ("propositional_logic", "(" * 19_000),
        ("propositional_logic", "¬" * 19_000 + "P"),
        ("chain_sum", "9" * 19_000),
    ],
)
def test_an_answer_cannot_keep_the_scorer_busy(name: str, answer: str) -> None:
    env = Reasoning(name)
    env.reset(seed=0)
    began = time.process_time()
    assert env.step(f"\\boxed{{{answer}}}").reward <= 0.1
    assert time.process_time() - began < 10
