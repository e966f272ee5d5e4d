"""Entry point of the pytest plugin: ``pytest --palestra my_env:Env`` runs the environment checks as test items.

pytest imports this module in every session of an environment in which Palestra is installed. It stands outside the package
because importing any module of ``palestra`` first runs ``palestra/__init__.py``, which takes a few hundred milliseconds. Only a
session with ``--palestra`` imports the package.
"""

import pytest

__all__ = ["pytest_addoption", "pytest_configure"]


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
    """Load the plugin itself if an environment is named."""
    if config.getoption("--palestra"):
        from palestra.testing.plugin import Checks

        config.pluginmanager.register(Checks(config), "palestra-checks")
