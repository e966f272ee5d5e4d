"""What a check found, as frozen data: for machines ``to_json``, for people ``render`` (see ``render.py``)."""

from enum import StrEnum

import msgspec

from palestra.encoding import encode_json

__all__ = ["CheckReport", "Finding", "Status", "Verdict", "failed", "passed", "shown", "skipped", "warned"]


class Status(StrEnum):
    """How a check came out."""

    PASS = "pass"
    FAIL = "fail"
    """The environment breaks the contract."""
    WARN = "warn"
    """It keeps the contract, but somebody will be sorry."""
    SKIP = "skip"
    """It could not be checked; the message says why."""


class Verdict(msgspec.Struct, frozen=True):
    """What one check function returns."""

    status: Status
    message: str
    """One line."""
    detail: str = ""
    """What was got, what was expected, what to do; empty for a pass."""


class Finding(msgspec.Struct, frozen=True):
    """The verdict of one check, under its name."""

    check: str
    status: Status
    message: str
    detail: str = ""


class CheckReport(msgspec.Struct, frozen=True):
    """Everything found about one environment."""

    env: str
    """The id, or ``module:Class``."""
    tasks: int
    """How many tasks were played."""
    asked: int
    """How many tasks were asked for; more than ``tasks`` if the time was not enough."""
    findings: tuple[Finding, ...]
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Nothing failed. Warnings and skipped checks do not count."""
        return all(finding.status is not Status.FAIL for finding in self.findings)

    def found(self, status: Status) -> tuple[Finding, ...]:
        """The findings of one status."""
        return tuple(finding for finding in self.findings if finding.status is status)

    def to_json(self) -> bytes:
        """The report for a machine, with ``ok`` written out."""
        return encode_json({"ok": self.ok, **msgspec.structs.asdict(self)})


def passed(message: str) -> Verdict:
    """The contract is kept."""
    return Verdict(Status.PASS, message)


def failed(message: str, detail: str) -> Verdict:
    """The contract is broken."""
    return Verdict(Status.FAIL, message, detail)


def warned(message: str, detail: str) -> Verdict:
    """The contract is kept at a price."""
    return Verdict(Status.WARN, message, detail)


def skipped(message: str) -> Verdict:
    """It could not be checked, for the reason given."""
    return Verdict(Status.SKIP, message)


def shown(text: str, limit: int = 80) -> str:
    """``text`` on one line, safe to print and to encode: what is not printable is escaped, what is long is cut."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return "".join(mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in cut)
