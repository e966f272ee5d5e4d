"""``palestra serve``: environments for a team, over the network."""

import os
import sys
from pathlib import Path

import typer

from palestra.errors import MissingExtra

__all__ = ["serve_command"]


def serve_command(
    ids: list[str] = typer.Argument(..., metavar="ID...", help='Ids, patterns ("game:*") or module:Class references.'),
    host: str = typer.Option("127.0.0.1", help="The address to listen on; only this machine by default."),
    port: int = typer.Option(0, min=0, max=65535, help="0 takes a free one."),
    token_file: Path = typer.Option(Path("token"), help="One token a line; made with a new one if it is missing."),
    isolate: bool = typer.Option(False, help="Run every environment in a worker process, not only those that block."),
    tls: tuple[Path, Path] | None = typer.Option(None, metavar="CERT KEY", help="PEM files, to speak https."),
) -> None:
    """Serve environments until SIGTERM or Ctrl-C; then let running episodes end."""
    try:
        from palestra.serve.server import serve
        from palestra.serve.tokens import read_token_file
    except ModuleNotFoundError as error:
        raise MissingExtra(f'serving needs {error.name}: pip install "palestra[serve]"') from None
    # A class in a file of this folder is found as it would be by `python -c "import …"`.
    sys.path.insert(0, os.getcwd())
    certificate, key = tls or (None, None)

    def ready(url: str) -> None:
        typer.echo(f"serving {len(ids)} pattern{'s' * (len(ids) != 1)} at {url} (token in {token_file})")
        typer.echo(f'palestra.make("remote:{url}#ID", token=…)')

    serve(
        ids,
        read_token_file(token_file),
        ready=ready,
        host=host,
        port=port,
        isolate=isolate,
        certificate=certificate,
        key=key,
    )
