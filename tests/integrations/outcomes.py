"""What `palestra check` says about an environment of another package."""

from palestra.checking.report import CheckReport


def outcome(report: CheckReport) -> dict[str, list[str]]:
    """The names of the checks that did not pass, by what became of them."""
    found: dict[str, list[str]] = {}
    for finding in report.findings:
        if finding.status != "pass":
            found.setdefault(str(finding.status), []).append(finding.check)
    return found
