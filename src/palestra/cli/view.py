"""``palestra view``: show runs, from the list of episodes down to single tokens."""

from pathlib import Path

import typer

from palestra.cli.options import port_option
from palestra.cli.results import json_option, show
from palestra.viewer import export_runs, view

__all__ = ["view_command"]


def view_command(
    runs: list[Path] = typer.Argument(
        ..., metavar="RUN...", help="Run folders, folders that contain run folders (runs/), or trajectories.jsonl files."
    ),
    export: Path | None = typer.Option(
        None, "--export", help="Write everything into this HTML file instead of starting a server."
    ),
    port: int = port_option(),
    browser: bool = typer.Option(True, help="Open the page in a browser."),
    as_json: bool = json_option("With --export, print the result as one JSON object."),
) -> None:
    """Show runs in a browser: tasks, episodes, turns, tokens. Read-only; only this machine can connect."""
    if export is None:
        view(runs, port=port, browser=browser, say=typer.echo)
    else:
        export_runs(runs, export)
        show(as_json, {"file": str(export)}, f"wrote {export}")
