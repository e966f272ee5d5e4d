"""The commands, and the sentence that each prints after Ctrl-C. ``endings.py`` turns errors into sentences and exit codes."""

import ast
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import typer

from palestra import __version__
from palestra.cli.endings import ExitCode, Interrupted
from palestra.errors import UsageError
from palestra.foundation.imports import import_uninterrupted
from palestra.foundation.resources.descriptors import raise_descriptor_limit
from palestra.foundation.telemetry import tracing_if_asked
from palestra.foundation.terminal import terminal_safe

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["ENTRIES", "OLD_SPELLINGS", "CommandEntry", "app", "app_for", "run_command"]

_AGAIN = "Nothing was changed: type the same command again."
_RESUMES = "Finished episodes are kept: the same command resumes with the others."


class CommandEntry(NamedTuple):
    """One command, or a group of commands, and how the list of all commands shows it."""

    panel: str
    """The heading under which ``palestra --help`` lists it."""
    name: str
    reference: str
    """Its module, in this folder unless a package is named, and the function or the Typer app in it."""
    way_out: str
    """The sentence after Ctrl-C."""
    group_help: str = ""
    """The help of a group; a command has its docstring instead."""


ENTRIES = (
    CommandEntry("Start", "demo", "demo:demo_command", "No page was written: the same command starts over."),
    CommandEntry("Start", "doctor", "doctor:doctor_command", _AGAIN),
    CommandEntry(
        "Start",
        "new",
        "new:app",
        "The package may be incomplete: remove its folder, then type the same command again.",
        "Write a package to start from.",
    ),
    CommandEntry("Environments", "list", "listing:list_command", _AGAIN),
    CommandEntry("Environments", "show", "show:show_command", _AGAIN),
    CommandEntry("Environments", "play", "play:play_command", "You left the game: --seed plays the same task again."),
    CommandEntry(
        "Environments",
        "check",
        "check:check_command",
        "The check has no result: the same command starts over, -n 20 plays fewer tasks.",
    ),
    CommandEntry(
        "Environments",
        "harbor",
        "palestra.worlds.harbor.commands:app",
        "Finished builds are kept: the same command starts over.",
        "Check, build and write Harbor tasks, which play without Docker.",
    ),
    CommandEntry("Evaluate", "eval", "evaluate:eval_command", _RESUMES),
    CommandEntry("Evaluate", "rollout", "rollout:rollout_command", _RESUMES),
    CommandEntry("Evaluate", "regrade", "regrade:regrade_command", "The run is as it was: the same command starts over."),
    CommandEntry("Train", "probe", "probe:probe_command", _RESUMES),
    CommandEntry("Train", "train", "train:train_command", "The same command resumes from the latest checkpoint."),
    CommandEntry(
        "Train",
        "study",
        "study:app",
        "Finished runs are kept: the same command resumes with the others.",
        "Compare training runs over arms, environments and seeds.",
    ),
    CommandEntry(
        "Train",
        "model",
        "model:app",
        "No model folder was made: the same command starts over.",
        "Export a trained model, or build or fetch a small one.",
    ),
    CommandEntry("Look", "view", "view:view_command", "The viewer is closed: the same command opens it again."),
    CommandEntry("Look", "compare", "compare:compare_command", _AGAIN),
    CommandEntry("Look", "leaderboard", "leaderboard:leaderboard_command", "The same command starts over."),
    CommandEntry("Look", "plot", "plot:plot_command", _AGAIN),
    CommandEntry("Look", "export", "interchange:export_command", "The same command starts over."),
    CommandEntry("Look", "import", "interchange:import_command", "No run was made: the same command starts over."),
    CommandEntry("Scale", "plan", "plan:plan_command", _AGAIN),
    CommandEntry(
        "Scale", "serve", "serve:serve_command", "The server is closed: the same command serves again, with the same token."
    ),
    CommandEntry(
        "Data", "prefetch", "prefetch:prefetch_command", "Complete data sets are kept: the same command fetches the others."
    ),
    CommandEntry(
        "Data",
        "index",
        "index:index_app",
        "No index was made or changed: the same command starts over.",
        "Build, try and serve document indexes for the search tool.",
    ),
)
"""All commands, in the order of their panels; within a panel the groups stand last, as typer shows them.

A world brings its group as a stranger's package does, with its full name, and stands here in place of an entry point: so it
works from a checkout, finding it costs no search through installed packages, and no package can take its name.
"""

OLD_SPELLINGS = {
    "scaling": "palestra scaling is an option of palestra eval now: type `palestra eval POLICY --envs ID --scaling -g 8`, with "
    "--max-turns in place of --turns and -g in place of --samples",
}
"""The commands that the version before this one had, and what to type now."""

ENTRY_POINT_GROUP = "palestra.commands"
"""Other packages add a group of commands through an entry point of this group: its name, and ``module:app`` of a Typer app."""
_OTHERS = "Of other packages"
"""The panel of these groups."""

_METAVARS: dict[object, str] = {int: "N", float: "NUMBER", str: "TEXT", Path: "PATH", bool: ""}
"""The type of an option → what its help shows as the value; a switch takes none."""


def _interruptible(command: Callable[..., None], way_out: str) -> Callable[..., None]:
    """``command``, which prints ``way_out`` after Ctrl-C: typer alone would print nothing."""

    @functools.wraps(command)
    def run(*args: object, **options: object) -> None:
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise Interrupted(way_out) from None

    for parameter in inspect.signature(command).parameters.values():
        declared = parameter.default
        if isinstance(declared, typer.models.ArgumentInfo):
            declared.metavar = declared.metavar or parameter.name.upper()
        elif isinstance(declared, typer.models.OptionInfo) and declared.metavar is None:
            types = {parameter.annotation, *get_args(parameter.annotation)}  # of "list[str]" and "int | None" too
            declared.metavar = next((shown for type_, shown in _METAVARS.items() if type_ in types), None)
    return run


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the app that runs ``arguments``: with the command that they name alone, or with the first lines of their help.

    To import all commands, and to build their options, takes longer than many a command.
    """
    first = next(iter(arguments), "")
    if first in ("", "-h", "--help") and _COMPLETION not in os.environ:
        return _overview()
    return _app(first if first in _own_names() or first in _groups_of_others() else "")


_COMPLETION = "_PALESTRA_COMPLETE"
"""A shell sets this variable when it asks for completions, which need all commands."""


def _empty() -> typer.Typer:
    made = typer.Typer(
        help="A gym and a trainer for agentic LLMs.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    return made


@functools.cache
def _app(only: str) -> typer.Typer:
    """Return the app with one command or group, or with all if ``only`` is empty."""
    made = _empty()
    for entry in ENTRIES:
        if only not in ("", entry.name):
            continue
        if entry.group_help:
            group = _group(_imported(entry.reference), entry.way_out)
            made.add_typer(group, name=entry.name, help=entry.group_help, rich_help_panel=entry.panel)
        else:
            command = _interruptible(_imported(entry.reference), entry.way_out)
            made.command(entry.name, rich_help_panel=entry.panel)(command)
    for name, point in ({} if only in _own_names() else _groups_of_others()).items():
        if only in ("", name):
            try:
                made.add_typer(_group(point.load(), "The same command starts over."), name=name, rich_help_panel=_OTHERS)
            except Exception as error:  # noqa: BLE001 - a broken package of others must not break this one
                warnings.warn(f"the commands of {name} ({point.value}) failed to load: {error!r}", stacklevel=2)
    return made


def _overview() -> typer.Typer:
    """Return an app that knows the names of all commands and the first lines of their help, and imports none of them."""
    made = _empty()
    for entry in ENTRIES:
        help = entry.group_help or _summary(entry.reference)
        made.command(entry.name, help=help, rich_help_panel=entry.panel)(_nothing)
    for name, point in _groups_of_others().items():
        help = f"Commands of the package {point.module.partition('.')[0]}."
        made.command(name, help=help, rich_help_panel=_OTHERS)(_nothing)
    return made


def _own_names() -> set[str]:
    """Return the first words that name a command or a group of Palestra's own."""
    return {entry.name for entry in ENTRIES}


@functools.cache
def _groups_of_others() -> "Mapping[str, EntryPoint]":
    """Return the entry points by which other packages add commands, by the first word that they take. Imports none of them."""
    from importlib import metadata  # costs as much as half of this package

    points = {point.name: point for point in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP))}
    for name in sorted(points.keys() & _own_names()):
        warnings.warn(f"the commands of {points[name].value} are left out: {name} is a command of Palestra's own", stacklevel=2)
        del points[name]
    return points


def _summary(reference: str) -> str:
    """Return the first paragraph of the docstring of a command, read from its source."""
    module, _, name = reference.partition(":")
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return (ast.get_docstring(function) or "").partition("\n\n")[0]


def _nothing() -> None:
    pass


def _imported(reference: str) -> Any:
    module, _, name = reference.partition(":")
    return getattr(import_uninterrupted(module if "." in module else f"palestra.cli.{module}"), name)


@functools.cache
def _group(group: typer.Typer, way_out: str) -> typer.Typer:
    """Return ``group``, whose commands print ``way_out`` after Ctrl-C. Cached, so that none of them is wrapped twice."""
    for command in group.registered_commands:
        if command.callback is not None:
            command.callback = _interruptible(command.callback, way_out)
    return group


app: typer.Typer
"""All commands."""


def __getattr__(name: str) -> typer.Typer:
    """Make ``app`` when it is asked for first."""
    if name == "app":
        return _app("")
    raise AttributeError(name)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"palestra {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Errors are raised to the caller."""
    warnings.showwarning = _say
    raise_descriptor_limit()
    typed = list(sys.argv[1:] if arguments is None else arguments)
    if typed and typed[0] in OLD_SPELLINGS:
        raise UsageError(OLD_SPELLINGS[typed[0]])
    try:
        with tracing_if_asked():
            app_for(typed)(typed, prog_name="palestra")
    except SystemExit as end:
        if end.code == ExitCode.INTERRUPTED:  # typer ends without a word if a command does not answer Ctrl-C itself
            raise Interrupted("The same command starts over.") from None
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def _say(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning without the line of code that raised it, which does not help a user."""
    typer.secho(f"warning: {terminal_safe(str(message))}", fg=typer.colors.YELLOW, err=True)
