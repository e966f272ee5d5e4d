"""The command line: one file per command, gathered in ``app.py``; ``endings.py`` says how each of them ends."""

from collections.abc import Sequence

from palestra.cli.endings import answered

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. ``arguments`` are those of the process by default."""

    def run() -> int:
        # Loading the commands takes a second: for ``python -m palestra.cli``, Ctrl-C is answered during that second too.
        from palestra.cli.app import run_command

        return run_command(arguments)

    return answered(run)
