"""``python -m palestra.cli``: the command line without its script."""

import sys

from palestra.cli import main

sys.exit(main())
