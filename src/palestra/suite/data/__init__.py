"""Data sets: one loader for all of them, and for files of your own.

``sets/*.toml`` says for each built-in set where it comes from, what its splits are called and which of its fields mean what.
Only ``palestra prefetch`` downloads. Rows are read from the data folder (``PALESTRA_DATA``, else ``~/.cache/palestra/data``),
from a package that contains them, or from the cache of the ``datasets`` library.
"""

from palestra.suite.data.field_map import DataSet, data_set, data_set_names
from palestra.suite.data.files import FileRows
from palestra.suite.data.loader import load

__all__ = ["DataSet", "FileRows", "data_set", "data_set_names", "load"]
