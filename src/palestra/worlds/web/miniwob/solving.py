"""The oracles of MiniWoB++. They read what an agent reads: see ``View``."""

from palestra.worlds.web.miniwob import clicking, pointing, writing
from palestra.worlds.web.miniwob.view import SOLVERS

__all__ = ["SOLVERS"]

_MODULES = (clicking, pointing, writing)  # each adds its oracles to SOLVERS when it is imported
