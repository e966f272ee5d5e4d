"""Commands run in the process of the tests."""

from typer.testing import CliRunner

from palestra.cli.app import app

__all__ = ["palestra"]


def palestra(*arguments: object, typed: str = "") -> str:
    """Run a command that ends with exit code 0, and return what it prints. An error is raised as it is."""
    done = CliRunner().invoke(app, [str(argument) for argument in arguments], input=typed, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout
