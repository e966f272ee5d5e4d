"""Values that a test knows to be there."""

from typing import TypeVar

from palestra.evaluation.report import Section
from palestra.foundation.statistics import PartialMean

__all__ = ["partial_score", "present"]

T = TypeVar("T")


def present(value: T | None) -> T:
    """Return ``value``, which must not be ``None``."""
    assert value is not None
    return value


def partial_score(section: Section) -> PartialMean:
    """Return the score of the episodes that have one."""
    return present(present(section.partial).score)
