"""The options that several commands share, each defined once: one vocabulary, and one set of defaults with Python."""

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from palestra.foundation.confidential import mask
from palestra.registry import list_envs, typed
from palestra.rollouts.defaults import CONCURRENCY, DEADLINE, TASKS_PER_ENV

__all__ = [
    "CLUSTER",
    "CLUSTER_CONFIG",
    "ENVS",
    "ENVS_OR_PANEL",
    "EPISODES_AT_ONCE",
    "GROUP_SIZE",
    "HISTORY",
    "HOST",
    "ID",
    "IDS",
    "LONGEST_REPLY",
    "MAX_TURNS",
    "MODEL_URL",
    "MORE_ENVS",
    "OVERRIDES",
    "POLICY",
    "SECONDS",
    "SEED",
    "SHOTS",
    "STRATEGY",
    "TASKS",
    "TASKS_OR_PANEL",
    "TASK_SEED",
    "TEMPERATURE",
    "TOKENIZER",
    "TOOLS",
    "TURN_LIMITS",
    "WORKERS",
    "WRAPPERS",
    "complete_ids",
    "default_folder",
    "group_size_option",
    "named_envs",
    "out_option",
    "port_option",
    "seed_option",
    "tasks_option",
    "token_file_option",
]

_LONGEST_NAME = 100
"""Most characters of a default folder's name; the rest is replaced by a hash."""


def complete_ids(incomplete: str) -> list[str]:
    """Return the environment ids, or the namespaces, that begin with ``incomplete``, for a shell that completes them."""
    specs = list_envs()
    if ":" in incomplete:
        return [spec.id for spec in specs if spec.id.startswith(incomplete)]
    return sorted({f"{spec.namespace}:" for spec in specs if spec.namespace.startswith(incomplete)})


# ------------------------------------------------------------------------------------------------------- environments and tasks

ID: Any = typer.Argument(
    ..., autocompletion=complete_ids, help='An id, with or without a level ("game:Sudoku-v0-easy"), or module:Class.'
)
IDS: Any = typer.Argument(
    ..., metavar="ID...", autocompletion=complete_ids, help='Ids, patterns ("game:*") or module:Class references.'
)
_ENVS_HELP = 'Ids or patterns of environments, or module:Class: --envs "game:*-easy" math:Sums'
ENVS: Any = typer.Option(..., "--envs", "-e", metavar="ID", autocompletion=complete_ids, help=_ENVS_HELP)
ENVS_OR_PANEL: Any = typer.Option([], "--envs", "-e", metavar="ID", autocompletion=complete_ids, help=_ENVS_HELP)
MORE_ENVS: Any = typer.Argument(
    None, metavar="ID", autocompletion=complete_ids, help="More ids or patterns. In `--envs A B C`, these are B and C."
)


def tasks_option(default: int | None, help: str = "Tasks per environment.", *, min: int = 1) -> Any:
    """``-n``: the number of tasks."""
    return typer.Option(default, "-n", min=min, help=help)


def seed_option(help: str, default: int | None = 0) -> Any:
    """``--seed``."""
    return typer.Option(default, "--seed", help=help)


TASKS = tasks_option(TASKS_PER_ENV)
TASKS_OR_PANEL = tasks_option(None, f"Tasks per environment; {TASKS_PER_ENV} by default.")
SEED = seed_option("Seed of the tasks and of every random choice.")
TASK_SEED = seed_option("Seed of the tasks.")

# ----------------------------------------------------------------------------------------------------- how episodes are played


def group_size_option(default: int, help: str = "Episodes per task.", *, min: int = 1) -> Any:
    """``-g``: the number of episodes per task."""
    return typer.Option(default, "-g", "--group-size", min=min, help=help)


GROUP_SIZE = group_size_option(1)
EPISODES_AT_ONCE: Any = typer.Option(
    CONCURRENCY, "-c", "--concurrency", min=1, help="Number of episodes that run at the same time."
)
SECONDS: Any = typer.Option(DEADLINE, "--deadline", metavar="SECONDS", help="Time limit per episode, in seconds.")
_MAX_TURNS_HELP = "Truncate an episode after this number of turns; by default at the limit of its environment."
MAX_TURNS: Any = typer.Option(None, "--max-turns", min=1, help=_MAX_TURNS_HELP)
TURN_LIMITS: Any = typer.Option(
    None, "--max-turns", min=1, metavar="N", help=f"{_MAX_TURNS_HELP} With --scaling, may be repeated."
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

# ---------------------------------------------------------------------------------------------------------------- the policy

POLICY: Any = typer.Argument(
    ...,
    help="random, oracle, tiny, your own module:name, hf:FOLDER, vllm:URL, sglang:URL, or a model's name with --base-url.",
)
MODEL_URL: Any = typer.Option(
    None, "--base-url", help="URL of an OpenAI-compatible API, without /chat/completions. Set the key in OPENAI_API_KEY."
)
LONGEST_REPLY: Any = typer.Option(4096, "--max-tokens", min=1, help="Longest reply of the model per turn, in tokens.")
TEMPERATURE: Any = typer.Option(1.0, "--temperature", min=0.0, help="Sampling temperature of the model.")
SHOTS: Any = typer.Option(
    0, "--shots", min=0, help="For hf:, vllm: and sglang: models: number of oracle episodes that the prompt shows first."
)
TOKENIZER: Any = typer.Option(
    None,
    "--tokenizer",
    help="Tokenizer (folder or hub name) of a server's model; by default the model name that the server reports.",
)
HISTORY: Any = typer.Option(
    None,
    "--history",
    metavar="NAME",
    help="What a model sees of its episode: full (the default), window?turns=4, last, summary?turns=4, or module:name.",
)
STRATEGY: Any = typer.Option(
    None,
    "--strategy",
    metavar="NAME",
    help="Strategy around the policy: react, plan, scratchpad, reflect, best_of?n=4, tree, or your own module:name.",
)

# ----------------------------------------------------------------------------------------------------- where it runs and writes

OVERRIDES: Any = typer.Argument(
    None, metavar="[KEY=VALUE]...", help="Recipe keys to override, for example learner.learning_rate=1e-5 horizon=none."
)
CLUSTER: Any = typer.Option(
    None,
    "--cluster",
    metavar="ADDRESS",
    help="Run on a Ray cluster: the address of its head node, auto, or local. By default in this process.",
)
WORKERS: Any = typer.Option(None, "--workers", min=1, help="Number of workers on the cluster. By default as many as fit.")
CLUSTER_CONFIG: Any = typer.Option(None, "--cluster-config", metavar="FILE", help="TOML file that describes pools of workers.")
HOST: Any = typer.Option("127.0.0.1", "--host", help="Address to listen on; by default only this machine can connect.")


def port_option(default: int = 0) -> Any:
    """``--port`` of a command that listens."""
    return typer.Option(default, "--port", min=0, max=65535, help="Port to listen on; 0 takes a free one.")


def token_file_option(default: Path | None) -> Any:
    """``--token-file`` of a command that listens."""
    return typer.Option(
        default,
        "--token-file",
        help="File with one token per line; clients must send one of them. If it does not exist, the server creates it with a "
        "new token.",
    )


def out_option(help: str, default: Any = None) -> Any:
    """``-o``: the file or folder that the command writes. ``...`` as default makes it required."""
    return typer.Option(default, "-o", "--out", help=help)


# ------------------------------------------------------------------------------------------------------ what the options mean


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
