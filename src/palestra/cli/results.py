"""What a command prints as its result: text for people, or with ``--json`` one JSON document for programs."""

from typing import Any

import typer

from palestra.authoring.commands import JSON, show

__all__ = ["JSON", "READY_JSON", "json_option", "show"]


def json_option(help: str) -> Any:
    """``--json`` of a command whose result needs more words than ``JSON``."""
    return typer.Option(False, "--json", help=help)


READY_JSON = json_option("Print one JSON object with the address when the server is ready.")
