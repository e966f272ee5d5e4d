"""``palestra show``: everything about one id: what it is, its levels, and how an episode begins."""

import inspect
from typing import Any

import typer

from palestra.encoding import encode_json, tame
from palestra.errors import MissingData, PalestraError
from palestra.registry import EnvSpec, list_envs, make, spec
from palestra.trajectory import text_of

__all__ = ["show_command"]


def show_command(
    id: str = typer.Argument(..., help='An id, with or without a level ("game:Sudoku-v0-easy").'),
    seed: int = typer.Option(0, help="Of the task whose beginning is shown."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object."),
) -> None:
    """Show an environment: its rules, its levels, what it needs and how an episode begins."""
    known = spec(id)
    facts = _facts(known)
    beginning = _beginning(known, seed)
    if as_json:
        typer.echo(encode_json(tame({**facts, "observation": beginning, "rules": _rules(known)})).decode())
        return
    typer.secho(known.id, bold=True)
    for name, value in facts.items():
        if name != "id" and value not in ("", None, [], {}):
            typer.echo(f"{name + ':':<13}{_told(value)}")
    typer.echo(f"\n{_rules(known)}\n")
    typer.secho(f"An episode begins (seed {seed}):", bold=True)
    typer.echo(beginning)


def _facts(known: EnvSpec) -> dict[str, Any]:
    family = known.id.removesuffix(f"-{known.level}") if known.level else known.id
    levels = {other.level: dict(other.kwargs) for other in list_envs(f"{family}-*") if other.level in known.levels}
    return {
        "id": known.id,
        "about": known.description,
        "entry": known.entry if isinstance(known.entry, str) else known.reference(),
        "level": known.level,
        "levels": {level: levels[level] for level in known.levels if level in levels},
        "parameters": dict(known.kwargs),
        "max_turns": known.max_turns,
        "tags": sorted(known.tags),
        "missing": [f"{need.label}: {need.remedy}" for need in known.missing()],
    }


def _rules(known: EnvSpec) -> str:
    return "" if known.missing() else inspect.cleandoc(known.factory().__doc__ or "")


def _beginning(known: EnvSpec, seed: int) -> str:
    if known.missing():
        return "(it cannot be made here: see what is missing)"
    try:
        with make(known.id) as env:
            return text_of(env.reset(seed=seed)[0])
    except MissingData as error:
        return f"({error})"
    except PalestraError as error:
        return f"({type(error).__name__}: {error})"


def _told(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key}: {_told(item)}" if isinstance(item, dict) else f"{key}={item}" for key, item in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
