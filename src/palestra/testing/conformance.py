"""What the conformance suites share: a check is an async function of the part under test that raises where it finds a fault."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple, TypeVar

__all__ = ["BrokenContract", "ConformanceResult", "expect", "run_checks"]

T = TypeVar("T")


class ConformanceResult(NamedTuple):
    """The result of one check."""

    check: str
    """Name of the check."""
    problem: str
    """What is wrong; empty if the check passed."""


class BrokenContract(AssertionError):
    """The part under test does something other than its contract says."""


def expect(holds: bool, expected: str, got: object) -> None:
    """Raise ``BrokenContract`` unless ``holds``."""
    if not holds:
        raise BrokenContract(f"expected {expected}, got {got!r}")


async def run_checks(checks: Sequence[Callable[[T], Awaitable[Any]]], subject: T) -> list[ConformanceResult]:
    """Run every check on ``subject``, one after another. A failed check does not stop the others."""
    return [ConformanceResult(check.__name__, await _problem(check, subject)) for check in checks]


async def _problem(check: Callable[[T], Awaitable[Any]], subject: T) -> str:
    try:
        await check(subject)
    except Exception as error:  # noqa: BLE001 - a failed check is a finding, whatever it raises
        return f"{type(error).__name__}: {error}"
    return ""
