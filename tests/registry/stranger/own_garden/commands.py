"""``palestra garden``: the commands of this world."""

import typer

from palestra.authoring.commands import JSON, show

app = typer.Typer(help="Look after the garden.", no_args_is_help=True)


@app.command("beds")
def beds_command(as_json: bool = JSON) -> None:
    """Print the number of beds."""
    from own_garden.env import read_beds  # type: ignore[import-not-found, unused-ignore]

    show(as_json, {"beds": len(read_beds())}, f"{len(read_beds())} beds")
