"""``palestra completion``: the script that lets a shell complete commands, options and environment ids."""

import os

import typer

from palestra.errors import UsageError

__all__ = ["VARIABLE", "complete_ids", "completion_command", "prepare_completion"]

VARIABLE = "_PALESTRA_COMPLETE"
"""The shell sets it when it asks for completions."""
_SHELLS = {
    "bash": "palestra completion bash >> ~/.bashrc",
    "zsh": "palestra completion zsh >> ~/.zshrc",
    "fish": "palestra completion fish > ~/.config/fish/completions/palestra.fish",
}
"""Each shell and how to install the script."""


def completion_command(shell: str = typer.Argument(..., help="bash, zsh or fish.")) -> None:
    """Print the completion script of a shell: palestra completion bash >> ~/.bashrc

    The script completes commands, options and environment ids. It takes effect in a new shell.
    """
    from typer._completion_shared import get_completion_script

    if shell not in _SHELLS:
        raise UsageError(f'no completion for "{shell}"; there is {", ".join(_SHELLS)}')
    typer.echo(f"# {_SHELLS[shell]}")
    if shell == "bash":
        typer.echo("COMP_WORDBREAKS=${COMP_WORDBREAKS//:}  # an id such as game:Sudoku-v0 is one word")
    typer.echo(get_completion_script(prog_name="palestra", complete_var=VARIABLE, shell=shell))


def prepare_completion() -> None:
    """Let typer answer a shell that asks for completions. Without a question this costs nothing."""
    if VARIABLE in os.environ:
        from typer._completion_classes import completion_init

        completion_init()


def complete_ids(incomplete: str) -> list[str]:
    """Return the environment ids, or the namespaces, that begin with ``incomplete``."""
    from palestra.registry import list_envs

    specs = list_envs()
    if ":" in incomplete:
        return [known.id for known in specs if known.id.startswith(incomplete)]
    return sorted({f"{known.namespace}:" for known in specs if known.namespace.startswith(incomplete)})
