"""The commands, and the sentence that each prints after Ctrl-C. ``endings.py`` turns errors into sentences and exit codes."""

import functools
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from palestra import __version__
from palestra.cli.completion import prepare_completion
from palestra.cli.endings import ExitCode, Interrupted
from palestra.descriptors import raise_descriptor_limit
from palestra.telemetry import tracing_if_asked
from palestra.terminal import terminal_safe

__all__ = ["app", "app_for", "run_command"]


class _Command(TyperCommand):
    """A command whose help names the values that the user types, instead of Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx), ctx)


class _Group(TyperGroup):
    """The same for a group of commands."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _with_plain_values(super().get_params(ctx), ctx)


_VALUES = {"int": "N", "int range": "N", "float": "NUMBER", "float range": "NUMBER", "str": "TEXT", "path": "PATH"}
"""A Python type, as typer shows it → what the help shows instead."""


def _with_plain_values(params: list[Any], ctx: Any) -> list[Any]:
    for param in params:
        if param.param_type_name == "argument":
            param.metavar = param.metavar or param.name.upper()
            param.display_type_rich = lambda ctx: None  # the argument's name says enough
        elif getattr(param, "is_flag", False):
            param.metavar = ""  # a switch takes no value
        elif param.metavar is None:
            shown = re.sub(r"list\[(\w+)\]", r"\1", (param.display_type_rich(ctx) or "").strip("<>"))
            param.metavar = _VALUES.get(shown)
    return params


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
    ("completion", "completion:completion_command", _AGAIN),
    ("serve", "serve:serve_command", "The server is closed: the same command serves again, with the same token."),
)
"""The name of each command, its module and function, and the sentence after Ctrl-C."""
_GROUPS: tuple[tuple[str, str, str], ...] = (
    ("new", "new:app", "The package may be incomplete: remove its folder, then type the same command again."),
    ("model", "model:app", "No model folder was made: the same command starts over."),
    ("index", "index:index_app", "No index was made or changed: the same command starts over."),
    ("harbor", "harbor:app", "Finished builds are kept: the same command starts over."),
    ("study", "study:app", "Finished runs are kept: the same command resumes with the others."),
)


_MOMENT = 0.05
"""Seconds after which the ``__del__`` that dropped a Ctrl-C has certainly ended."""


def _interruptible(command: Callable[..., None], way_out: str) -> Callable[..., None]:
    """``command``, which prints ``way_out`` after Ctrl-C: typer alone would print nothing."""

    @functools.wraps(command)
    def run(*args: object, **options: object) -> None:
        before = sys.unraisablehook
        sys.unraisablehook = functools.partial(_send_again, before)
        try:
            command(*args, **options)
        except KeyboardInterrupt:
            raise Interrupted(way_out) from None
        finally:
            sys.unraisablehook = before

    return run


def _send_again(others: Callable[["sys.UnraisableHookArgs"], object], failed: "sys.UnraisableHookArgs") -> None:
    """Repeat a Ctrl-C that fell into a ``__del__``, for example of a library that is being imported: Python drops it there.

    ``others`` is the hook for every other exception.
    """
    if failed.exc_type is not KeyboardInterrupt:
        others(failed)
        return
    later = threading.Timer(_MOMENT, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    later.daemon = True
    later.start()


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the app that runs ``arguments``: with the command that they name alone, else with all commands.

    To import all commands, and to build their options, takes longer than many a command.
    """
    first = next(iter(arguments), "")
    return _app(first if any(first == name for name, *_ in (*_COMMANDS, *_GROUPS)) else "")


@functools.cache
def _app(only: str) -> typer.Typer:
    """Return the app with one command or group, or with all if ``only`` is empty."""
    made = typer.Typer(
        cls=_Group,
        help="A gym and a trainer for agentic LLMs.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(_root)
    for name, place, way_out in _COMMANDS:
        if only in ("", name):
            made.command(name, cls=_Command)(_interruptible(_imported(place), way_out))
    for name, place, way_out in _GROUPS:
        if only in ("", name):
            made.add_typer(_group(place, way_out), name=name, cls=_Group)
    return made


def _imported(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(import_module(f"palestra.cli.{module}"), name)


@functools.cache
def _group(place: str, way_out: str) -> typer.Typer:
    group: typer.Typer = _imported(place)
    for command in group.registered_commands:
        if command.callback is not None:
            command.callback = _interruptible(command.callback, way_out)
            command.cls = _Command
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
    prepare_completion()
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
