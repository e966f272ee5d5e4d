"""All families of terminal tasks, by name, and what a player scores in them who never reads the goal."""

from collections.abc import Callable, Mapping

import numpy as np

from palestra.worlds.terminal.archives import archives
from palestra.worlds.terminal.data import logs, tables
from palestra.worlds.terminal.history import git
from palestra.worlds.terminal.programs import build, tests
from palestra.worlds.terminal.reports import pipeline
from palestra.worlds.terminal.scene import Scene
from palestra.worlds.terminal.system import drift, permissions, processes
from palestra.worlds.terminal.texts import golf, text

__all__ = ["FAMILIES", "FLOORS"]

FAMILIES: Mapping[str, Callable[[np.random.Generator, int], Scene]] = {
    "text": text,
    "logs": logs,
    "tables": tables,
    "git": git,
    "build": build,
    "tests": tests,
    "permissions": permissions,
    "archives": archives,
    "processes": processes,
    "drift": drift,
    "pipeline": pipeline,
    "golf": golf,
}

FLOORS: Mapping[str, tuple[float, float, float]] = {
    "text": (0.08, 0.03, 0.0),  # the most common count; the most common question
    "logs": (0.2, 0.0, 0.0),  # one of five statuses
    "git": (0.05, 0.05, 0.05),  # one of at least 20 commits, files or passwords
    "archives": (0.04, 0.04, 0.04),  # one of at least 28 files
    "processes": (0.05, 0.07, 0.07),  # one of at least 20 workers, or of at least 14
    "drift": (0.03, 0.0, 0.0),  # the most common key and side
}
"""The share of the tasks of each level that the best fixed script solves, rounded up; 0 for other families."""
