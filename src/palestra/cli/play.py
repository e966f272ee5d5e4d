r"""``palestra play``: you against the environment, in the terminal.

What is typed is the action, to the letter, with one kindness: where the rules ask for ``\boxed{…}`` and it is missing, it is
put around what was typed. With ``--tool`` you have what an agent would have: ``<python>1 + 1</python>`` runs in the box.
"""

import os
import sys
from collections.abc import Callable, Sequence
from functools import partial

import typer

from palestra.core import AsyncEnv, Env, Tool
from palestra.errors import Unsupported, UsageError
from palestra.registry import make
from palestra.tools import CallForm, find_calls
from palestra.trajectory import text_of
from palestra.wrappers import ToolRules, UseTools

__all__ = ["play_command"]


def play_command(
    id: str = typer.Argument(..., help="An id, or module:Class."),
    seed: int | None = typer.Option(None, help="Play this very task; by default another each time."),
    tool: list[str] = typer.Option([], help="Lend yourself a tool: python, or search=FOLDER of an index. May be repeated."),
) -> None:
    """Play an environment yourself. `?` shows what a perfect player would do; Ctrl-D ends."""
    sys.path.insert(0, os.getcwd())
    with make(id, wrappers=_lend(tool)) as env:
        observation, _ = env.reset(seed=seed)
        first = text_of(observation)
        typer.secho(f"{id}, seed {env.task.seed}\n", dim=True)
        try:
            _play(env, first, wants_box="\\boxed" in first)
        except (EOFError, KeyboardInterrupt):
            typer.secho("\nYou left the game.", dim=True)


def _lend(names: Sequence[str]) -> list[Callable[[AsyncEnv], AsyncEnv]]:
    if not names:
        return []
    return [partial(UseTools, tools=[_tool(name) for name in names], rules=ToolRules(forms=tuple(CallForm)))]


def _tool(name: str) -> Tool:
    kind, _, folder = name.partition("=")
    if kind == "python" and not folder:
        from palestra.tools.python import PythonTool

        return PythonTool()
    if kind == "search" and folder:
        from palestra.tools.search import SearchTool
        from palestra.tools.search.bm25 import Bm25Index

        return SearchTool(Bm25Index(folder))
    raise UsageError(f"no tool {name!r}: write python, or search=FOLDER")


def _play(env: Env, shown: str, *, wants_box: bool) -> None:
    total, turn = 0.0, 0
    while True:
        typer.echo(shown)
        action = _ask(env, turn + 1, wants_box)
        observation, reward, terminated, truncated, info = env.step(action)
        turn += 1
        total += reward
        shown = text_of(observation)
        if reward:
            typer.secho(f"reward {reward:+.2f}", fg=typer.colors.YELLOW)
        if terminated or truncated:
            break
    typer.echo(shown)
    won = info.get("success")
    colour = typer.colors.GREEN if won else typer.colors.RED if won is not None else None
    verdict = "" if won is None else "solved, " if won else "not solved, "
    typer.secho(f"\n{verdict}{turn} turn{'s' * (turn != 1)}, total reward {total:.2f}", fg=colour, bold=True)


def _ask(env: Env, turn: int, wants_box: bool) -> str:
    while True:
        typed = input(f"\n[{turn}] > ")
        if typed.strip() != "?":
            finished = "\\boxed" in typed or bool(find_calls(typed, tuple(CallForm)))
            return f"\\boxed{{{typed.strip()}}}" if wants_box and not finished else typed
        try:
            typer.secho(env.oracle(), fg=typer.colors.CYAN)
        except Unsupported as error:
            typer.secho(str(error), dim=True)
