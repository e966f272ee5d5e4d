"""What a command prints as its result: text for people, or with ``--json`` one JSON document for programs."""

from typing import Any

import typer

from palestra.foundation.encoding import encode_json

__all__ = ["JSON", "READY_JSON", "show"]

JSON = typer.Option(False, "--json", help="Print the result as one JSON object.")
READY_JSON = typer.Option(False, "--json", help="Print one JSON object with the address when the server is ready.")


def show(as_json: bool, data: Any, text: str) -> None:
    """Print ``data`` as JSON, or ``text``."""
    typer.echo(encode_json(data).decode() if as_json else text)
