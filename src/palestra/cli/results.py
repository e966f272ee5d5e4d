"""What a command prints as its result: text for people, or with ``--json`` one JSON document for programs."""

import typer

from palestra.authoring.commands import JSON, show

__all__ = ["JSON", "READY_JSON", "show"]

READY_JSON = typer.Option(False, "--json", help="Print one JSON object with the address when the server is ready.")
