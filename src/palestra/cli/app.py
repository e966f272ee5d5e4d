"""The ``palestra`` command. Mistakes of the user are told in one line; everything else is a traceback, because it is ours."""

import sys
import warnings
from collections.abc import Callable

import typer

from palestra import __version__
from palestra.cli import (
    check,
    compare,
    demo,
    doctor,
    evaluate,
    index,
    interchange,
    leaderboard,
    listing,
    model,
    plan,
    play,
    plot,
    prefetch,
    regrade,
    rollout,
    serve,
    show,
    train,
    view,
)
from palestra.errors import PalestraError

__all__ = ["app", "main"]

app = typer.Typer(
    help="A gym and a trainer for agentic LLMs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_COMMANDS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("list", listing.list_command),
    ("show", show.show_command),
    ("play", play.play_command),
    ("demo", demo.demo_command),
    ("eval", evaluate.eval_command),
    ("rollout", rollout.rollout_command),
    ("plan", plan.plan_command),
    ("compare", compare.compare_command),
    ("regrade", regrade.regrade_command),
    ("train", train.train_command),
    ("plot", plot.plot_command),
    ("leaderboard", leaderboard.leaderboard_command),
    ("view", view.view_command),
    ("export", interchange.export_command),
    ("import", interchange.import_command),
    ("prefetch", prefetch.prefetch_command),
    ("check", check.check_command),
    ("doctor", doctor.doctor_command),
    ("serve", serve.serve_command),
)
for _name, _function in _COMMANDS:
    app.command(_name)(_function)
app.add_typer(model.app, name="model")
app.add_typer(index.index_app, name="index")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"palestra {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Show the version."),
) -> None:
    pass


def main() -> None:
    """Run the command line."""
    warnings.showwarning = _say
    try:
        app()
    except PalestraError as error:
        typer.secho(f"{type(error).__name__}: {error}", fg=typer.colors.RED, err=True)
        sys.exit(2)


def _say(message: Warning | str, *_: object, **__: object) -> None:
    """A warning, without the line of code it comes from: whoever runs a command has no use for that."""
    typer.secho(f"warning: {message}", fg=typer.colors.YELLOW, err=True)
