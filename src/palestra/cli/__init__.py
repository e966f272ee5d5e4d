"""The command line: one file a command, gathered in ``app.py``."""

from palestra.cli.app import main

__all__ = ["main"]
