"""The environment checks as pytest items, one per check, for ``pytest --palestra ENV``.

``pytest_plugins = ["palestra.testing.plugin"]`` in the ``conftest.py`` beside a project's ``pyproject.toml`` loads it. It is no
entry point of pytest: pytest would rewrite the assertions of all of Palestra, in every project that has Palestra installed.

The checks of one environment share the episodes that they look at. So the first item plays the environment and runs every check
that pytest selected; each item reports the result of its own check.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from palestra.checking import CHECKS, CheckReport, Finding, Status, check_env
from palestra.errors import PalestraError
from palestra.registry import is_pattern, list_envs, spec, typed

__all__ = ["CheckWarning", "Checks", "pytest_addoption", "pytest_configure"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    group = parser.getgroup("palestra", "environment checks of Palestra")
    group.addoption(
        "--palestra",
        metavar="ENV",
        action="append",
        default=[],
        help='Check an environment, one test per check: an id, a pattern ("game:*-easy") or module:Class. Repeatable.',
    )
    group.addoption("--palestra-tasks", metavar="N", type=int, default=200, help="Tasks to play per environment (default 200).")
    group.addoption(
        "--palestra-seconds",
        metavar="S",
        type=float,
        default=60.0,
        help="Seconds per environment; slower environments are checked on fewer tasks (default 60).",
    )
    group.addoption("--palestra-seed", metavar="SEED", type=int, default=0, help="Seed of the first task (default 0).")


def pytest_configure(config: pytest.Config) -> None:
    """Add the checks if an environment is named."""
    if config.getoption("--palestra"):
        config.pluginmanager.register(Checks(config), "palestra-checks")


class CheckWarning(UserWarning):
    """A check that passed with a warning."""


class CheckFailed(Exception):
    """A check that failed."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.message}\n{finding.detail}".strip())


class Checks:
    """Adds the items of every environment that ``--palestra`` names to those that pytest collected."""

    def __init__(self, config: pytest.Config) -> None:
        self._targets: list[str] = config.getoption("--palestra")
        typed(self._targets)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        """Add the items before -k and -m deselect some."""
        for target in _expanded(self._targets):
            found = Environment.from_parent(session, name=target, nodeid=target).collect()
            items.extend(found)
            # The terminal counts what such a report lists.
            session.ihook.pytest_collectreport(report=pytest.CollectReport(target, "passed", None, list(found)))


def _expanded(targets: list[str]) -> Iterator[str]:
    for target in targets:
        try:
            matches = [found.id for found in list_envs(target)] if is_pattern(target) else []
            if not matches:
                spec(target)  # raises for a name or a pattern that means nothing
            yield from matches or [target]
        except PalestraError as error:
            raise pytest.UsageError(f"--palestra {target}: {error}") from None


class Environment(pytest.Collector):
    """One environment. Its report is made once, when the first item needs it."""

    _report: CheckReport | None = None

    def collect(self) -> list[pytest.Item]:
        """One item per check."""
        return [CheckItem.from_parent(self, name=check.name) for check in CHECKS]

    def finding(self, name: str) -> Finding:
        """The result of the check ``name``."""
        if self._report is None:
            self._report = self._check()
        return next(finding for finding in self._report.findings if finding.check == name)

    def _check(self) -> CheckReport:
        options = self.config.option
        selected = {item.name for item in self.session.items if item.parent is self}
        needed = selected.union(*((*check.after, *check.given) for check in CHECKS if check.name in selected))
        return check_env(
            self.name,
            n=options.palestra_tasks,
            seed=options.palestra_seed,
            seconds=options.palestra_seconds,
            skip={check.name for check in CHECKS} - needed,
        )


class CheckItem(pytest.Item):
    """One check of one environment."""

    parent: Environment

    def runtest(self) -> None:
        """Pass, fail, skip or warn as the check does."""
        finding = self.parent.finding(self.name)
        match finding.status:
            case Status.FAIL:
                raise CheckFailed(finding)
            case Status.SKIP:
                pytest.skip(finding.message)
            case Status.WARN:
                warnings.warn(CheckWarning(f"{self.parent.name}: {finding.message}\n{finding.detail}"), stacklevel=1)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The message of the check, without a traceback; any other error as pytest shows it."""
        if isinstance(excinfo.value, CheckFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[str, None, str]:
        """The headline of a failure."""
        return self.parent.name, None, f"{self.parent.name} {self.name}"
