"""One definition of the settings: what Python, the command line and ``RolloutOptions`` say must be the same."""

import asyncio
import inspect
from dataclasses import fields
from typing import Any, get_type_hints

import numpy as np
import pytest
import typer

from palestra import Task, Trajectory, collect, evaluate, make_vec, play, rollout
from palestra.cli.app import app
from palestra.errors import UsageError
from palestra.evaluation import evaluate_async
from palestra.rollouts import RolloutOptions
from palestra.rollouts.defaults import TASKS_PER_ENV

VERBS = [rollout, collect, evaluate, evaluate_async]
ONLY_ROLLOUT = {"cut_as_invalid", "skip"}
ONLY_TRAINER = {"first_group", "seating", "shared_limit"}
OF_A_PANEL = {"n", "group_size", "concurrency"}


def keyword_parameters(function: Any) -> dict[str, inspect.Parameter]:
    return {
        parameter.name: parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize("function", [*VERBS, play])
def test_the_signature_shows_every_setting_with_the_type_and_default_of_the_options(function: Any) -> None:
    absent = set(ONLY_TRAINER)
    if function in (evaluate, evaluate_async):
        absent |= ONLY_ROLLOUT
    if function is play:
        absent |= OF_A_PANEL | {"skip"}
    shown = keyword_parameters(function)
    types = get_type_hints(RolloutOptions)
    settings = {field.name: field.default for field in fields(RolloutOptions) if field.name not in absent}
    assert {name: shown[name].default for name in settings} == settings
    assert {name: shown[name].annotation for name in settings} == {name: types[name] for name in settings}
    assert not absent & set(shown)
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in inspect.signature(function).parameters.values())


def test_the_signature_keeps_what_a_function_writes_out_itself() -> None:
    assert list(inspect.signature(collect).parameters)[:3] == ["envs", "policy", "progress"]
    assert list(inspect.signature(play).parameters)[:5] == ["task", "policy", "group", "member", "cut_as_invalid"]
    assert keyword_parameters(collect)["progress"].default is None
    assert inspect.signature(collect).return_annotation == list[Trajectory]


@pytest.mark.parametrize(("function", "is_async"), [(collect, False), (evaluate, False), (evaluate_async, True), (play, True)])
def test_what_must_be_awaited_says_so(function: Any, is_async: bool) -> None:
    assert asyncio.iscoroutinefunction(function) is is_async


@pytest.mark.parametrize("name", sorted(ONLY_TRAINER))
def test_a_setting_of_the_trainer_is_no_keyword(name: str) -> None:
    setting: dict[str, Any] = {name: None}
    with pytest.raises(TypeError, match=rf"rollout\(\) got an unexpected keyword argument '{name}'"):
        rollout("game:GuessTheNumber-v0-easy", "random", **setting)


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
    from palestra.recipes.play import EvaluationSettings, PlaySettings

    named, play = RolloutOptions(), PlaySettings()
    assert (play.concurrency, play.deadline, play.retries) == (named.concurrency, named.deadline, named.retries)
    assert EvaluationSettings(every=1).n == TASKS_PER_ENV


@pytest.mark.parametrize("verb", VERBS)
def test_a_misspelled_keyword_is_named(verb: Any) -> None:
    with pytest.raises(TypeError, match=rf"{verb.__name__}\(\) got an unexpected keyword argument 'group_sise'"):
        verb("game:GuessTheNumber-v0-easy", "random", group_sise=2)


WHOLE = ("n", "group_size", "concurrency", "seed", "max_turns", "retries")
NOT_WHOLE: list[Any] = ["3", 2.5, 2.0, True, np.bool_(True), [1], np.array([1, 2]), float("nan")]
WRONG = [
    *[(name, value) for name in WHOLE for value in NOT_WHOLE],
    *[(name, 0) for name in ("n", "group_size", "concurrency", "max_turns")],
    *[(name, None) for name in ("group_size", "concurrency", "seed", "retries")],
    *[("retries", -1), ("seed", "x")],
    *[("deadline", value) for value in (0.0, -1, "60", None, True, float("nan"), float("inf"), 10**400, 1j)],
]


@pytest.mark.parametrize(("name", "wrong"), WRONG, ids=repr)
def test_a_wrong_value_is_refused_before_anything_is_played(name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be .*, got "):
        rollout("game:GuessTheNumber-v0-easy", "random", **{name: wrong})


@pytest.mark.parametrize("verb", [collect, evaluate])
def test_the_blocking_verbs_refuse_the_same(verb: Any) -> None:
    with pytest.raises(UsageError, match=r"^n must be a whole number, got '3' \(str\)$"):
        verb("game:GuessTheNumber-v0-easy", "random", n="3")


def test_numbers_of_numpy_are_numbers() -> None:
    options = RolloutOptions(n=np.int64(3), seed=np.int32(1), deadline=np.float32(5.0))  # type: ignore[arg-type]
    assert len(collect("game:GuessTheNumber-v0-easy", "random", n=options.n, seed=options.seed)) == 3


@pytest.mark.parametrize(
    ("name", "wrong"),
    [("seed", "x"), ("seed", 1.5), ("deadline", 10**400), ("num_envs", "2"), ("num_envs", True), ("num_envs", 0)],
)
def test_a_vector_refuses_a_wrong_value(name: str, wrong: Any) -> None:
    with pytest.raises(UsageError, match=f"{name} must be .*, got "):
        make_vec("game:GuessTheNumber-v0-easy", **{name: wrong})


@pytest.mark.parametrize("seed", ["x", "12", 1.5, True, [1, "2"], [1, 2.0]])
def test_the_reset_of_a_vector_refuses_a_wrong_seed(seed: Any) -> None:
    with make_vec("game:GuessTheNumber-v0-easy", 2) as vector, pytest.raises(UsageError, match="seed must be a whole number"):
        vector.reset(seed=seed)


@pytest.mark.parametrize("name", ["group", "member", "seed"])
async def test_a_single_episode_refuses_a_wrong_value(name: str) -> None:
    options: dict[str, Any] = {name: 1.5}
    with pytest.raises(UsageError, match=f"{name} must be a whole number"):
        await play(Task("game:GuessTheNumber-v0-easy"), "random", **options)


def typed_calls() -> None:
    """Not run but type-checked: an ignore that mypy does not need is an error, so each of these mistakes must be one."""
    rollout("game:GuessTheNumber-v0-easy", "random", n=2, group_size=2, skip={(0, 1)})
    collect("game:GuessTheNumber-v0-easy", "random", progress=False, deadline=2, cut_as_invalid=True)
    collect("game:GuessTheNumber-v0-easy", "random", group_sise=2)  # type: ignore[call-arg]
    collect("game:GuessTheNumber-v0-easy", "random", n="2")  # type: ignore[arg-type]
    rollout("game:GuessTheNumber-v0-easy", "random", first_group=2)  # type: ignore[call-arg]
    evaluate("game:GuessTheNumber-v0-easy", "random", n=2, retries=0, player="x")
    evaluate("game:GuessTheNumber-v0-easy", "random", skip={(0, 1)})  # type: ignore[call-arg]
    play(Task("game:GuessTheNumber-v0-easy"), "random", n=2)  # type: ignore[call-arg, unused-coroutine]
