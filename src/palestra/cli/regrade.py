"""``palestra regrade``: score a run again with the current environments and graders, without its model."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import typer

from palestra.cli.options import EPISODES_AT_ONCE, SECONDS, TOOLS, WRAPPERS, out_option
from palestra.cli.results import JSON, show
from palestra.evaluation import read_report, report_markdown
from palestra.evaluation.regrade import Regrading, regrade_async
from palestra.foundation.terminal import terminal_safe
from palestra.registry import typed

__all__ = ["regrade_command"]

SHOWN = 20


def regrade_command(
    run: Path = typer.Argument(..., help="The folder of an evaluation."),
    envs: list[str] = typer.Option(
        [],
        "-e",
        "--envs",
        help="By default, only environments with a registered id are played. Name another one here if you trust it: "
        "module:Class or remote:URL#ID. May be repeated.",
    ),
    out: Path | None = out_option("Folder for the new scores; by default a new folder inside RUN."),
    tool: list[str] = TOOLS,
    wrapper: list[str] = WRAPPERS,
    concurrency: int = EPISODES_AT_ONCE,
    deadline: float = SECONDS,
    as_json: bool = JSON,
) -> None:
    """Score a run again: play its recorded actions on the same tasks, without the model.

    The command lists the episodes that got no new score, with the reason. If there are any, the exit code is 1.
    """
    typed([*envs, *tool, *wrapper])
    regrading = asyncio.run(
        regrade_async(run, envs=envs, out=out, wrappers=wrapper, tools=tool, concurrency=concurrency, deadline=deadline)
    )
    report = read_report(regrading.folder)
    lines = [terminal_safe(report_markdown(report)), *_lines(regrading)]
    lines.append(f"wrote {regrading.folder}  (palestra compare {regrading.folder} {run})")
    changes = {"changed": regrading.changed, "not_regraded": regrading.not_regraded}
    show(as_json, {"folder": str(regrading.folder), "report": report, **changes}, "\n".join(lines))
    if regrading.not_regraded:
        raise typer.Exit(1)


def _lines(regrading: Regrading) -> Iterator[str]:
    for entry in regrading.changed[:SHOWN]:
        yield f"{_name(entry.group, entry.member)}: {_score(entry.before)} → {_score(entry.after)}"
    yield from _more(len(regrading.changed), "changed")
    reasons = Counter(entry.why for entry in regrading.not_regraded)
    for why, count in reasons.most_common(SHOWN):
        examples = [_name(entry.group, entry.member) for entry in regrading.not_regraded if entry.why == why]
        yield f"not regraded: {count}, because {terminal_safe(why)} ({', '.join(examples[:5])}{', …' if count > 5 else ''})"
    yield from _more(len(reasons), "reasons")


def _more(count: int, what: str) -> Iterator[str]:
    if count > SHOWN:
        yield f"… {count - SHOWN} more {what}, all in regrade.json"


def _name(group: int, member: int) -> str:
    return f"task {group}, episode {member + 1}"


def _score(value: float | None) -> str:
    return "no score" if value is None else f"{value:.3f}"
