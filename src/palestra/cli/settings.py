"""The options that ``palestra eval`` and ``palestra rollout`` share: one vocabulary and one set of defaults with Python."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from palestra.confidential import mask
from palestra.registry import typed
from palestra.rollout.defaults import CONCURRENCY, DEADLINE, TASKS_PER_ENV

__all__ = [
    "ENVS",
    "ENVS_OR_PANEL",
    "EPISODES_AT_ONCE",
    "GROUP_SIZE",
    "MAX_TURNS",
    "MORE_ENVS",
    "SECONDS",
    "SEED",
    "TASKS",
    "TOOLS",
    "WRAPPERS",
    "default_folder",
    "named_envs",
]

_LONGEST_NAME = 100
"""Most characters of a default folder's name; the rest is replaced by a hash."""

_ENVS_HELP = 'Ids or patterns of environments, or module:Class: --envs "game:*-easy" math:Sums'
ENVS: Any = typer.Option(..., "--envs", "-e", metavar="ID", help=_ENVS_HELP)
ENVS_OR_PANEL: Any = typer.Option([], "--envs", "-e", metavar="ID", help=_ENVS_HELP)
MORE_ENVS: Any = typer.Argument(None, metavar="ID", help="More ids or patterns. In `--envs A B C`, these are B and C.")
TASKS: Any = typer.Option(TASKS_PER_ENV, "-n", min=1, metavar="N", help="Tasks per environment.")
GROUP_SIZE: Any = typer.Option(1, "-g", "--group-size", min=1, metavar="N", help="Episodes per task.")
EPISODES_AT_ONCE: Any = typer.Option(
    CONCURRENCY, "-c", "--concurrency", min=1, metavar="N", help="Number of episodes that run at the same time."
)
SEED: Any = typer.Option(0, "--seed", metavar="N", help="Seed of the tasks and of every random choice.")
MAX_TURNS: Any = typer.Option(
    None,
    "--max-turns",
    min=1,
    metavar="N",
    help="Truncate an episode after this number of turns; by default at the limit of its environment.",
)
TOOLS: Any = typer.Option(
    [],
    "--tool",
    metavar="NAME",
    help="Lend a tool to the agent: python, search?index=FOLDER, or your own module:name. May be repeated.",
)
WRAPPERS: Any = typer.Option(
    [],
    "--wrapper",
    metavar="NAME",
    help="Wrap every environment: TurnLimit?turns=3 or another built-in wrapper, or your own module:name. May be repeated; "
    "the first is innermost.",
)
SECONDS: Any = typer.Option(DEADLINE, "--deadline", metavar="SECONDS", help="Time limit per episode, in seconds.")


def named_envs(envs: list[str], more_envs: list[str] | None, others: Sequence[str] = ()) -> list[str]:
    """All environments that were typed: the shell's words after the first value of ``--envs`` arrive as ``more_envs``.

    Names of modules among them, and among ``others``, are also looked up in the working folder.
    """
    chosen = [*envs, *(more_envs or [])]
    typed([*chosen, *others])
    return chosen


def default_folder(*words: str) -> Path:
    """``runs/WORD,WORD,…``: the same words give the same folder, so the same command resumes; other words give another."""
    name = ",".join(re.sub(r"[^\w.=+-]+", "-", mask(word).replace("*", "all")).strip("-") for word in words)
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 9]},{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return Path("runs") / name
