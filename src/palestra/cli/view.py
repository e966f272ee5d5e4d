"""``palestra view``: look at runs, down to the token."""

from pathlib import Path

import typer

from palestra.viewer import export_runs, view

__all__ = ["view_command"]


def view_command(
    runs: list[Path] = typer.Argument(..., metavar="RUN...", help="Run folders (with a trajectories.jsonl), or such files."),
    export: Path | None = typer.Option(None, "--export", help="Write one self-contained page instead of serving."),
    port: int = typer.Option(0, min=0, max=65535, help="Where to listen on this machine; any free port by default."),
    browser: bool = typer.Option(True, help="Open a browser."),
) -> None:
    """Show runs: tasks, episodes, turns, tokens. Read-only, for this machine only."""
    if export is None:
        view(runs, port=port, browser=browser, say=typer.echo)
    else:
        export_runs(runs, export)
        typer.echo(f"wrote {export}")
