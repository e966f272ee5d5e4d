"""The commands, and the sentence that each prints after Ctrl-C. ``endings.py`` turns errors into sentences and exit codes."""

import ast
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer

from palestra import __version__
from palestra.cli.endings import ExitCode, Interrupted
from palestra.foundation.descriptors import raise_descriptor_limit
from palestra.foundation.laziness import import_uninterrupted
from palestra.foundation.telemetry import tracing_if_asked
from palestra.foundation.terminal import terminal_safe

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

__all__ = ["app", "app_for", "run_command"]

_AGAIN = "Nothing was changed: type the same command again."
_RESUMES = "Finished episodes are kept: the same command resumes with the others."

_COMMANDS: tuple[tuple[str, str, str], ...] = (
    ("list", "listing:list_command", _AGAIN),
    ("show", "show:show_command", _AGAIN),
    ("play", "play:play_command", "You left the game: --seed plays the same task again."),
    ("demo", "demo:demo_command", "No page was written: the same command starts over."),
    ("eval", "evaluate:eval_command", _RESUMES),
    ("rollout", "rollout:rollout_command", _RESUMES),
    ("scaling", "scaling:scaling_command", _RESUMES),
    ("probe", "probe:probe_command", _RESUMES),
    ("plan", "plan:plan_command", _AGAIN),
    ("compare", "compare:compare_command", _AGAIN),
    ("regrade", "regrade:regrade_command", "The run is as it was: the same command starts over."),
    ("train", "train:train_command", "The same command resumes from the latest checkpoint."),
    ("plot", "plot:plot_command", _AGAIN),
    ("leaderboard", "leaderboard:leaderboard_command", "The same command starts over."),
    ("view", "view:view_command", "The viewer is closed: the same command opens it again."),
    ("export", "interchange:export_command", "The same command starts over."),
    ("import", "interchange:import_command", "No run was made: the same command starts over."),
    ("prefetch", "prefetch:prefetch_command", "Complete data sets are kept: the same command fetches the others."),
    ("check", "check:check_command", "The check has no result: the same command starts over, -n 20 plays fewer tasks."),
    ("doctor", "doctor:doctor_command", _AGAIN),
    ("serve", "serve:serve_command", "The server is closed: the same command serves again, with the same token."),
)
"""The name of each command, its module and function, and the sentence after Ctrl-C."""
_GROUPS: tuple[tuple[str, str, str, str], ...] = (
    (
        "new",
        "new:app",
        "Write a package to start from.",
        "The package may be incomplete: remove its folder, then type the same command again.",
    ),
    (
        "model",
        "model:app",
        "Export a trained model, or build or fetch a small one.",
        "No model folder was made: the same command starts over.",
    ),
    (
        "index",
        "index:index_app",
        "Build, try and serve document indexes for the search tool.",
        "No index was made or changed: the same command starts over.",
    ),
    (
        "harbor",
        "palestra.worlds.harbor.commands:app",
        "Check, build and write Harbor tasks, which play without Docker.",
        "Finished builds are kept: the same command starts over.",
    ),
    (
        "study",
        "study:app",
        "Compare training runs over arms, environments and seeds.",
        "Finished runs are kept: the same command resumes with the others.",
    ),
)
"""The name of each group of commands, its module and app, its help, and the sentence after Ctrl-C.

A world brings its group as a stranger's package does, with its full name, and stands here in place of an entry point: so it
works from a checkout, finding it costs no search through installed packages, and no package can take its name.
"""

ENTRY_POINT_GROUP = "palestra.commands"
"""Other packages add a group of commands through an entry point of this group: its name, and ``module:app`` of a Typer app."""

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
    for name, place, way_out in _COMMANDS:
        if only in ("", name):
            made.command(name)(_interruptible(_imported(place), way_out))
    for name, place, help, way_out in _GROUPS:
        if only in ("", name):
            made.add_typer(_group(_imported(place), way_out), name=name, help=help)
    for name, point in ({} if only in _own_names() else _groups_of_others()).items():
        if only in ("", name):
            try:
                made.add_typer(_group(point.load(), "The same command starts over."), name=name)
            except Exception as error:  # noqa: BLE001 - a broken package of others must not break this one
                warnings.warn(f"the commands of {name} ({point.value}) failed to load: {error!r}", stacklevel=2)
    return made


def _overview() -> typer.Typer:
    """Return an app that knows the names of all commands and the first lines of their help, and imports none of them."""
    made = _empty()
    for name, place, _ in _COMMANDS:
        made.command(name, help=_summary(place))(_nothing)
    for name, _, help, _ in _GROUPS:
        made.command(name, help=help)(_nothing)
    for name, point in _groups_of_others().items():
        made.command(name, help=f"Commands of the package {point.module.partition('.')[0]}.")(_nothing)
    return made


def _own_names() -> set[str]:
    """Return the first words that name a command or a group of Palestra's own."""
    return {name for name, *_ in (*_COMMANDS, *_GROUPS)}


@functools.cache
def _groups_of_others() -> "Mapping[str, EntryPoint]":
    """Return the entry points by which other packages add commands, by the first word that they take. Imports none of them."""
    from importlib import metadata  # costs as much as half of this package

    points = {point.name: point for point in sorted(metadata.entry_points(group=ENTRY_POINT_GROUP))}
    for name in sorted(points.keys() & _own_names()):
        warnings.warn(f"the commands of {points[name].value} are left out: {name} is a command of Palestra's own", stacklevel=2)
        del points[name]
    return points


def _summary(place: str) -> str:
    """Return the first paragraph of the docstring of a command, read from its source."""
    module, _, name = place.partition(":")
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    function = next(node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef) and node.name == name)
    return (ast.get_docstring(function) or "").partition("\n\n")[0]


def _nothing() -> None:
    pass


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
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
