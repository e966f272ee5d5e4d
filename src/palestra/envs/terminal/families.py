"""All families of terminal tasks, by name."""

from collections.abc import Callable, Mapping

import numpy as np

from palestra.envs.terminal.archives import archives
from palestra.envs.terminal.data import logs, tables
from palestra.envs.terminal.history import git
from palestra.envs.terminal.programs import build, tests
from palestra.envs.terminal.reports import pipeline
from palestra.envs.terminal.scene import Scene
from palestra.envs.terminal.system import drift, permissions, processes
from palestra.envs.terminal.texts import golf, text

__all__ = ["FAMILIES"]

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
