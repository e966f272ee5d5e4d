"""``palestra leaderboard``: policies over environments, as one page."""

from pathlib import Path

import msgspec
import typer

from palestra.encoding import encode_json
from palestra.errors import UsageError
from palestra.evaluation import read_report
from palestra.evaluation.leaderboard import Entry, Leaderboard, entry_of, leaderboard_page, reference_entries

__all__ = ["leaderboard_command"]

HEAD = """# Leaderboard

Mean total reward with its 95 % interval, and in brackets the number of tasks. "not run" means just that. Written by
`palestra leaderboard`; how to read an interval is in [statistics](../design/statistics.md).
"""


def leaderboard_command(  # noqa: PLR0913 - one parameter an option
    runs: list[Path] = typer.Argument(None, metavar="[RUN]...", help="Folders of evaluations to add to the table."),
    table: Path = typer.Option(Path("leaderboard.json"), help="The table: entries are added to it."),
    reference: Path | None = typer.Option(None, help="The suite's scores.json: random and oracle play."),
    name: str = typer.Option("", help="What to call the one RUN, if not by its policy's name."),
    note: str = typer.Option("", help="How the one RUN was played, in a sentence."),
    expect: list[str] = typer.Option([], help="A policy that is still to be run: it gets an empty column."),
    out: Path = typer.Option(Path("leaderboard.md"), "-o", "--out", help="The page."),
) -> None:
    """Add evaluations to a table of policies over environments, and write it as a page."""
    found = runs or []
    if (name or note) and len(found) != 1:
        raise UsageError(f"--name and --note are about one run, got {len(found)}")
    board = Leaderboard.read(table)
    known = {entry.policy for entry in board.entries}
    board = board.with_entries([entry_of(read_report(run), name=name, note=note) for run in found])
    board = board.with_entries(Entry(policy) for policy in expect if policy not in known)
    table.write_bytes(msgspec.json.format(encode_json(board), indent=1) + b"\n")
    lines = reference_entries(msgspec.json.decode(reference.read_bytes())) if reference is not None else []
    out.write_text(leaderboard_page([*lines, *board.entries], head=HEAD), encoding="utf-8")
    typer.echo(f"wrote {out}: {len(lines) + len(board.entries)} policies")
