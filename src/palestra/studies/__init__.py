"""Studies: training runs that differ in one thing, over environments and seeds, with tables and figures made from them.

``study`` reads the TOML file of a study, ``running`` makes its runs, ``results`` keeps one JSON file per run, ``ranking``
compares arms, and ``page`` writes tables and figures into a Markdown page without running anything. ``palestra study`` is the
same on the command line.
"""

from palestra.studies.results import RunResult, read_results
from palestra.studies.study import Cell, Study, load_study

__all__ = ["Cell", "RunResult", "Study", "load_study", "read_results"]
