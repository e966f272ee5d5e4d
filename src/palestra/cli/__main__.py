"""``python -m palestra.cli``: the command line without its script."""

from palestra.cli import main

main()
