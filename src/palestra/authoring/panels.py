"""A task of a panel, as the rule of a world lists it. ``palestra.suite.panels`` says what panels are."""

from typing import NamedTuple

from palestra.trajectory import Task

__all__ = ["PanelTask"]


class PanelTask(NamedTuple):
    """A task of a panel, as a rule lists it."""

    task: Task
    group: str = ""
    """Its column in the report's table, ``World/Column``; empty if the report has no such table."""
