"""``palestra leaderboard``: a page with the scores of policies by environment."""

from pathlib import Path
from typing import Any

import msgspec
import typer

from palestra.cli.options import out_option
from palestra.cli.results import JSON, show
from palestra.durable import replacing
from palestra.errors import SchemaError, UsageError
from palestra.evaluation import read_report
from palestra.evaluation.leaderboard import Leaderboard, LeaderboardEntry, entry_of, leaderboard_page, reference_entries
from palestra.foundation.encoding import decode_json, encode_json

__all__ = ["leaderboard_command"]

HEAD = """# Leaderboard

Each cell shows the mean total reward, its 95 % interval in brackets, and the number of tasks in parentheses. "not run" means
that the policy has not played the environment. "0.31 of 27 of 40 (all: 0.21 to 0.54)" is the mean of 27 of the 40 episodes that
were asked for, with the range of the mean of all 40. `palestra leaderboard` wrote this page;
[statistics](../design/statistics.md) explains the intervals.
"""


def leaderboard_command(
    runs: list[Path] = typer.Argument(None, metavar="[RUN]...", help="Run folders of evaluations to add to the table."),
    table: Path = typer.Option(Path("leaderboard.json"), help="JSON file with the table. The command adds entries to it."),
    reference: Path | None = typer.Option(
        None, help="File with the scores of random and oracle, docs/reference/suite/scores.json of the repository."
    ),
    name: str = typer.Option("", help="Name for RUN in the table; by default the name of its policy."),
    note: str = typer.Option("", help="One sentence about how RUN was played."),
    expect: list[str] = typer.Option([], help="A policy that has no run yet: the page lists it as not run. May be repeated."),
    out: Path = out_option("Markdown page to write.", Path("leaderboard.md")),
    as_json: bool = JSON,
) -> None:
    """Add evaluations to a table of policies by environments, and write the table as a page."""
    folders = runs or []
    if (name or note) and len(folders) != 1:
        raise UsageError(f"--name and --note describe one run, but {len(folders)} runs were given: add the runs one by one")
    # Lock both files before the table is read: a second command at the same time is refused, and no entry is lost.
    with replacing(table, "--table") as new_table, replacing(out) as page:
        board = Leaderboard.read(table)
        listed = {entry.policy for entry in board.entries}
        board = board.with_entries([entry_of(read_report(run), name=name, note=note) for run in folders])
        board = board.with_entries(LeaderboardEntry(policy) for policy in expect if policy not in listed)
        new_table.write_bytes(msgspec.json.format(encode_json(board), indent=1) + b"\n")
        lines = _reference_lines(reference) if reference is not None else []
        page.write_text(leaderboard_page([*lines, *board.entries], head=HEAD), encoding="utf-8")
    policies = [*lines, *board.entries]
    show(as_json, {"file": str(out), "policies": policies}, f"wrote {out}: {len(policies)} policies")


def _reference_lines(path: Path) -> list[LeaderboardEntry]:
    try:
        return reference_entries(decode_json(path.read_bytes(), dict[str, dict[str, Any]]))
    except SchemaError as error:
        raise SchemaError(f"{path} is not a table of scores: {error}") from None
