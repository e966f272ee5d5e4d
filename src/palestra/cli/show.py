"""``palestra show``: one id: its description, levels, rules, requirements and first observation."""

import inspect
from typing import Any

import typer

from palestra.cli.options import ID, seed_option
from palestra.cli.results import json_option
from palestra.errors import MissingData, PalestraError
from palestra.foundation.encoding import encode_json, tame
from palestra.foundation.terminal import terminal_safe
from palestra.registry import EnvSpec, list_envs, make, spec, typed
from palestra.trajectory import text_of

__all__ = ["show_command"]


def show_command(
    id: str = ID,
    seed: int = seed_option("Seed of the task to show."),
    as_json: bool = json_option("Print one JSON object."),
) -> None:
    """Show an environment: its rules, levels, requirements and the first observation of a task."""
    typed([id])
    env_spec = spec(id)
    first_observation, traits = _try_out(env_spec, seed)
    facts = {**_facts(env_spec), **traits}
    if as_json:
        typer.echo(encode_json(tame({**facts, "observation": first_observation, "rules": _rules(env_spec)})).decode())
        return
    typer.secho(env_spec.id, bold=True)
    for name, value in facts.items():
        if name != "id" and value not in ("", None, [], {}):
            typer.echo(f"{name + ':':<13}{_as_text(value)}")
    typer.echo(f"\n{terminal_safe(_rules(env_spec))}\n")
    typer.secho(f"First observation (seed {seed}):", bold=True)
    typer.echo(terminal_safe(first_observation))


def _facts(spec: EnvSpec) -> dict[str, Any]:
    family = spec.id.removesuffix(f"-{spec.level}") if spec.level else spec.id
    levels = {other.level: dict(other.kwargs) for other in list_envs(f"{family}-*") if other.level in spec.levels}
    return {
        "id": spec.id,
        "about": spec.description,
        "entry": spec.entry if isinstance(spec.entry, str) else spec.reference(),
        "level": spec.level,
        "levels": {level: levels[level] for level in spec.levels if level in levels},
        "parameters": dict(spec.kwargs),
        "tags": sorted(spec.tags),
        "missing": [f"{need.label}: {need.remedy}" for need in spec.missing()],
    }


def _rules(spec: EnvSpec) -> str:
    return "" if spec.missing() else inspect.cleandoc(spec.factory().__doc__ or "")


def _try_out(spec: EnvSpec, seed: int) -> tuple[str, dict[str, Any]]:
    """The first observation of a task, or why there is none, and what the environment declares about its episodes."""
    declared: dict[str, Any] = {"max_turns": spec.max_turns}
    if spec.missing():
        return "(not available: install what is listed under missing)", declared
    try:
        with make(spec.id) as env:
            observation = text_of(env.reset(seed=seed)[0])
            author = env.unwrapped
            turns = spec.max_turns if spec.max_turns is not None else getattr(author, "max_turns", None)
            return observation, {"max_turns": turns, "floor": author.floor, "ceiling": author.ceiling}
    except MissingData as error:
        return f"({error})", declared
    except PalestraError as error:
        return f"({type(error).__name__}: {error})", declared


def _as_text(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(
            f"{key}: {_as_text(item)}" if isinstance(item, dict) else f"{key}={item}" for key, item in value.items()
        )
    if isinstance(value, float):
        return f"{value:.3g}"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
