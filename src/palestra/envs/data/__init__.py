"""Data sets: one loader for all of them, and frozen panels of tasks.

``sets/*.toml`` says for each set where it comes from, what its splits are called and which of its fields mean what.
Nothing is downloaded but by ``palestra prefetch``. Rows are read from the data folder (``PALESTRA_DATA``, else
``~/.cache/palestra/data``), from a package that carries them, or from what the ``datasets`` library has in its cache.
"""

from palestra.envs.data.field_map import DataSet, data_set, data_set_names
from palestra.envs.data.loader import Rows, data_folder, load
from palestra.envs.data.panel import Panel, draw_panel, read_panel

__all__ = ["DataSet", "Panel", "Rows", "data_folder", "data_set", "data_set_names", "draw_panel", "load", "read_panel"]
