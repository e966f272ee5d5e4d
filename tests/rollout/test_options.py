"""One definition of the settings: what Python, the command line and ``RolloutOptions`` say must be the same."""

import inspect
from dataclasses import MISSING, fields
from typing import Any

import pytest
import typer

from palestra import collect, evaluate, rollout
from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.evaluation import evaluate_async
from palestra.rollout import RolloutOptions, options, supply
from palestra.rollout.defaults import CONCURRENCY, DEADLINE, RETRIES, TASKS_PER_ENV

VERBS = [rollout, collect, evaluate, evaluate_async]
ONLY_ROLLOUT = {"cut_as_invalid", "skip"}
ONLY_TRAINER = {"first_group", "places", "seating"}


def keywords(verb: Any) -> dict[str, Any]:
    return {name: one.default for name, one in inspect.signature(verb).parameters.items() if one.kind is one.KEYWORD_ONLY}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_writes_out_the_settings_with_the_same_defaults(verb: Any) -> None:
    written = keywords(verb)
    # ``rollout`` writes its types as text: the module is imported with the package, and theirs are not.
    parameters = inspect.signature(verb, eval_str=True, locals={**vars(supply), **vars(options)}).parameters
    assert list(parameters)[:2] == ["envs", "policy"]
    for field in fields(RolloutOptions):
        if field.name in ONLY_TRAINER or (verb in (evaluate, evaluate_async) and field.name in ONLY_ROLLOUT):
            assert field.name not in written
        else:
            assert written[field.name] == field.default is not MISSING, field.name
            assert parameters[field.name].annotation == field.type


def test_defaults() -> None:
    assert (CONCURRENCY, DEADLINE, RETRIES, TASKS_PER_ENV) == (256, 600.0, 2, 100)
    default = RolloutOptions()
    assert (default.group_size, default.seed, default.first_group, default.cut_as_invalid) == (1, 0, 0, False)


def test_the_blocking_and_the_async_evaluation_take_the_same_keywords() -> None:
    assert keywords(evaluate) == keywords(evaluate_async)


@pytest.mark.parametrize("command", ["eval", "rollout"])
def test_the_command_line_has_the_same_names_and_defaults(command: str) -> None:
    group: Any = typer.main.get_command(app)
    options = {option.name: option for option in group.commands[command].params}
    named = RolloutOptions()
    if command == "eval":  # without -n, a panel is played whole
        assert options["n"].default is None
        assert f"{TASKS_PER_ENV} by default" in options["n"].help
    else:
        assert options["n"].default == TASKS_PER_ENV
    for name in ("group_size", "concurrency", "seed", "deadline", "max_turns"):
        assert options[name].default == getattr(named, name)
        assert f"--{name.replace('_', '-')}" in options[name].opts


@pytest.mark.torch
def test_a_recipe_has_the_same_names_and_defaults() -> None:
    pytest.importorskip("torch")
    from palestra.training.config import EvaluationSettings, PlaySettings

    named, play = RolloutOptions(), PlaySettings()
    assert (play.concurrency, play.deadline, play.retries) == (named.concurrency, named.deadline, named.retries)
    assert EvaluationSettings(every=1).n == TASKS_PER_ENV


@pytest.mark.parametrize("verb", VERBS)
def test_a_misspelled_keyword_is_named(verb: Any) -> None:
    with pytest.raises(TypeError, match=rf"{verb.__name__}\(\) got an unexpected keyword argument 'group_sise'"):
        verb("game:GuessTheNumber-v0-easy", "random", group_sise=2)


@pytest.mark.parametrize(
    "wrong", [{"n": 0}, {"group_size": 0}, {"concurrency": 0}, {"deadline": 0.0}, {"max_turns": 0}, {"retries": -1}]
)
def test_a_wrong_value_is_refused_before_anything_is_played(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(UsageError, match=f"{name} must be"):
        rollout("game:GuessTheNumber-v0-easy", "random", **wrong)
