"""The results of commands that a package adds to ``palestra``: text for people, or with ``--json`` one document for programs.

An entry point of the group ``palestra.commands`` names a ``typer.Typer``; its own name is the command's: with ``house =
"my_package.commands:app"``, the user types ``palestra house ...``.
"""

from typing import Any

import typer

from palestra.foundation.encoding import encode_json
from palestra.foundation.terminal import terminal_safe

__all__ = ["JSON", "show", "tell"]

JSON = typer.Option(False, "--json", help="Print the result as one JSON object.")
"""The option ``--json`` of a command."""


def show(as_json: bool, data: Any, text: str) -> None:
    """Print ``data`` as JSON, or ``text``."""
    typer.echo(encode_json(data).decode() if as_json else text)


def tell(line: str) -> None:
    """Print ``line`` without the control characters that a terminal would obey: for text that others have written."""
    typer.echo(terminal_safe(line))
