"""The result of a check as frozen data. ``to_json`` writes it for machines, ``render`` (in ``render.py``) for a terminal."""

from enum import StrEnum

import msgspec

from palestra.foundation.encoding import encode_json

__all__ = ["CheckReport", "Finding", "Status", "Verdict", "failed", "passed", "shown", "skipped", "warned"]


class Status(StrEnum):
    """The outcome of a check."""

    PASS = "pass"  # noqa: S105 - the outcome of a check
    FAIL = "fail"
    """The environment breaks the contract."""
    WARN = "warn"
    """It keeps the contract, but is likely to cause trouble."""
    SKIP = "skip"
    """It could not be checked; the message says why."""


class Verdict(msgspec.Struct, frozen=True):
    """What one check function returns."""

    status: Status
    message: str
    """One line."""
    detail: str = ""
    """What happened, what was expected, and what to do; empty for a pass."""


class Finding(msgspec.Struct, frozen=True):
    """The verdict of one check, under its name."""

    check: str
    status: Status
    message: str
    detail: str = ""


class CheckReport(msgspec.Struct, frozen=True):
    """All findings about one environment."""

    env: str
    """The id, or ``module:Class``."""
    tasks: int
    """Number of tasks that were played."""
    asked: int
    """Number of tasks that were requested; more than ``tasks`` if the time ran out."""
    findings: tuple[Finding, ...]
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether no check failed. Warnings and skipped checks do not count."""
        return all(finding.status is not Status.FAIL for finding in self.findings)

    def found(self, status: Status) -> tuple[Finding, ...]:
        """Return the findings with one status."""
        return tuple(finding for finding in self.findings if finding.status is status)

    def to_json(self) -> bytes:
        """Return the report as JSON, including ``ok``."""
        return encode_json({"ok": self.ok, **msgspec.structs.asdict(self)})


def passed(message: str) -> Verdict:
    """Return a verdict: the environment keeps the contract."""
    return Verdict(Status.PASS, message)


def failed(message: str, detail: str) -> Verdict:
    """Return a verdict: the environment breaks the contract."""
    return Verdict(Status.FAIL, message, detail)


def warned(message: str, detail: str) -> Verdict:
    """Return a verdict: the environment keeps the contract, but is likely to cause trouble."""
    return Verdict(Status.WARN, message, detail)


def skipped(message: str) -> Verdict:
    """Return a verdict: the check could not run, for the reason in ``message``."""
    return Verdict(Status.SKIP, message)


def shown(text: str, limit: int = 80) -> str:
    """Return ``text`` on one line, safe to print: unprintable characters are escaped, and a long text is cut."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in cut)
