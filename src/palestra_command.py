"""Entry point of the installed ``palestra`` command.

It stands outside the package on purpose: importing any module of ``palestra`` first runs ``palestra/__init__.py``, which takes
a few hundred milliseconds, and the commands take longer. Ctrl-C during that time ends the process at once. An exception would
not do: a library that is half imported may wrap a ``KeyboardInterrupt`` in an error of its own, or swallow it.
"""

import os
import signal
import sys
from types import FrameType

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit code."""
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # a shell that starts us in the background has Ctrl-C ignored: it stays so
        signal.signal(signal.SIGINT, _leave)
    from palestra.cli import main as run
    from palestra.cli.app import app_for

    app_for(sys.argv[1:])  # imports the command here, where Ctrl-C ends the process at once
    signal.signal(signal.SIGINT, usual)
    return run()


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"Interrupted before the command began: type it again.\n")
    os._exit(130)
