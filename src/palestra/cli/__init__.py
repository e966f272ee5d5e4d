"""The command line: one file per command, gathered in ``app.py``; ``endings.py`` says how each of them ends."""

import sys
from collections.abc import Sequence

from palestra.foundation.imports import import_uninterrupted

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code. ``arguments`` are those of the process by default."""
    typed = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if typed == ["--version"]:  # importing the commands would take ten times as long
            from palestra import __version__

            print(f"palestra {__version__}")
            return 0
        ended: int = import_uninterrupted("palestra.cli.endings").answered(
            lambda: import_uninterrupted("palestra.cli.app").run_command(typed)
        )
        return ended
    except KeyboardInterrupt:
        print("Interrupted before the command began: type it again.", file=sys.stderr)
        return 130
