"""The options that ``palestra eval`` and ``palestra rollout`` share: one vocabulary and one set of defaults with Python."""

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
    "ENVS",
    "ENVS_OR_PANEL",
    "EPISODES_AT_ONCE",
    "GROUP_SIZE",
    "HISTORY",
    "LONGEST_REPLY",
    "MAX_TURNS",
    "MODEL_URL",
    "MORE_ENVS",
    "SECONDS",
    "SEED",
    "SHOTS",
    "STRATEGY",
    "TASKS",
    "TEMPERATURE",
    "TOKENIZER",
    "TOOLS",
    "WRAPPERS",
    "complete_ids",
    "default_folder",
    "named_envs",
]

_LONGEST_NAME = 100
"""Most characters of a default folder's name; the rest is replaced by a hash."""


def complete_ids(incomplete: str) -> list[str]:
    """Return the environment ids, or the namespaces, that begin with ``incomplete``, for a shell that completes them."""
    specs = list_envs()
    if ":" in incomplete:
        return [spec.id for spec in specs if spec.id.startswith(incomplete)]
    return sorted({f"{spec.namespace}:" for spec in specs if spec.namespace.startswith(incomplete)})


_ENVS_HELP = 'Ids or patterns of environments, or module:Class: --envs "game:*-easy" math:Sums'
ENVS: Any = typer.Option(..., "--envs", "-e", metavar="ID", autocompletion=complete_ids, help=_ENVS_HELP)
ENVS_OR_PANEL: Any = typer.Option([], "--envs", "-e", metavar="ID", autocompletion=complete_ids, help=_ENVS_HELP)
MORE_ENVS: Any = typer.Argument(
    None, metavar="ID", autocompletion=complete_ids, help="More ids or patterns. In `--envs A B C`, these are B and C."
)
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
STRATEGY: Any = typer.Option(
    None,
    "--strategy",
    metavar="NAME",
    help="Strategy around the policy: react, plan, scratchpad, reflect, best_of?n=4, tree, or your own module:name.",
)
HISTORY: Any = typer.Option(
    None,
    "--history",
    metavar="NAME",
    help="What a model sees of its episode: full (the default), window?turns=4, last, summary?turns=4, or module:name.",
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
