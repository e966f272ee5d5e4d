"""``palestra model``: small models to try things on."""

from pathlib import Path

import typer

from palestra.errors import UsageError
from palestra.models import build_tiny, fetch_smollm2

__all__ = ["app"]

app = typer.Typer(help="Small models for tests, examples and learning curves.", no_args_is_help=True)
_FETCHERS = {"smollm2": fetch_smollm2}
_OUT = typer.Option(None, "--out", "-o", help="The folder to make; by default one in the user's cache.")


@app.command("fetch")
def fetch_command(name: str = typer.Argument(..., help="smollm2"), out: Path | None = _OUT) -> None:
    """Fetch a real model (SmolLM2-135M-Instruct, about half a gigabyte) and print its folder."""
    if name not in _FETCHERS:
        raise UsageError(f"no model {name!r} to fetch; there is {', '.join(_FETCHERS)}")
    typer.echo(_FETCHERS[name](out))


@app.command("tiny")
def tiny_command(
    envs: str = typer.Option("game:*", help="Whose text the tokenizer learns."),
    seed: int = typer.Option(0, help="Of the weights and the text."),
    out: Path | None = _OUT,
) -> None:
    """Build a tiny untrained model (under a million parameters) and print its folder."""
    typer.echo(build_tiny(out, envs=envs, seed=seed))
