"""Tests run with the extras that are installed: a test that needs another one is skipped, and the skip names the extra.

CI installs all of them and sets ``PALESTRA_TEST_EXTRAS=all``, with which a missing package is a failure: a test that is
silently left out proves nothing.
"""

import fcntl
import gc
import os
import re
import signal
import sys
import zlib
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from palestra import registry
from palestra.cli.endings import EXTRAS
from palestra.errors import MissingExtra
from palestra.foundation.installation import how_to_install

# A shell that starts us in the background has Ctrl-C ignored, here and in all our children. Some tests are about Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine draws and runs examples slowly. The time limit of a test is against hangs; examples need no limit of their own.
settings.register_profile("palestra", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("palestra")

_ALL_INSTALLED = os.environ.get("PALESTRA_TEST_EXTRAS") == "all"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect without the garbage collector, and hide the modules from it: its passes through them take seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def _missing(error: BaseException | None) -> str:
    """What is not installed, if ``error`` or what caused it says so."""
    while error is not None:
        if isinstance(error, ModuleNotFoundError) and (module := (error.name or "").partition(".")[0]) in EXTRAS:
            return f"{module} is not installed: {how_to_install(EXTRAS[module])}"
        if isinstance(error, MissingExtra):
            return str(error)
        error = error.__cause__ or error.__context__
    return ""


def _named(skip: BaseException) -> str:
    """Name the extra, if ``skip`` comes from ``pytest.importorskip``, which names the module only."""
    found = re.match(r"could not import '(\w+)", str(skip)) if isinstance(skip, pytest.skip.Exception) else None
    return _missing(ModuleNotFoundError(name=found[1])) if found else ""


class _Module(pytest.Module):
    """A test module that is skipped if an extra is missing that it imports."""

    def _getobj(self) -> Any:
        try:
            return super()._getobj()  # type: ignore[no-untyped-call]
        except BaseException as error:
            # pytest leaves a half-imported module behind, from which other tests would import in vain.
            sys.modules.pop(".".join(self.path.relative_to(self.config.rootpath).with_suffix("").parts), None)
            if why := _named(error) or (_missing(error) if isinstance(error, self.CollectError) else ""):
                pytest.skip(why, allow_module_level=True)
            raise


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Collect a module so that a missing extra skips it."""
    return None if _ALL_INSTALLED else _Module.from_parent(parent, path=module_path)


def _skipping() -> Generator[None, Any, Any]:
    try:
        return (yield)
    except pytest.skip.Exception as skip:
        if why := _named(skip):
            pytest.skip(why)
        raise
    except Exception as error:
        if not _ALL_INSTALLED and (why := _missing(error)):
            pytest.skip(why)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None, Any, Any]:
    """Skip a test whose fixtures lack an extra."""
    return (yield from _skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, Any, Any]:
    """Skip a test that turns out to lack an extra."""
    return (yield from _skipping())


@pytest.fixture(autouse=True, scope="module")
def _frozen_modules() -> None:
    """Hide the imported modules from the garbage collector: through their million objects a ``gc.collect()`` takes a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def _all_registered() -> None:
    """Register what is registered late: what a test adds to the registry can then be told from it."""
    registry.list_envs()


@pytest.fixture(autouse=True)
def _own_registry(_all_registered: None) -> Generator[None, Any, Any]:
    """Forget what a test registered, such as the variants of a recipe: the next test must not meet it in a pattern."""
    before = dict(registry._specs)
    yield
    if registry._specs != before:
        registry._specs.clear()
        registry._specs.update(before)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model with random weights, built once for all workers of the session. Tests only read it."""
    from palestra.inference.models import build_tiny

    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent  # each worker has a folder of its own below one that they share
    with (folder / "tiny-model.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return build_tiny(folder / "tiny-model", envs="game:GuessTheNumber*", words=400, width=32)


CORE = (
    "adapters",
    "agents",
    "authoring",
    "checking",
    "durable",
    "evaluation",
    "foundation",
    "grading",
    "policies",
    "registry",
    "rollouts",
    "training/algorithms",
    "training/learner",
    "trajectory",
    "wrappers",
)
"""Test folders of the core, besides the files ``tests/test_*.py``: the gate runs their slow tests too."""
HERE = Path(__file__).parent
SHARD, SHARDS = map(int, os.environ.get("PALESTRA_TEST_SHARD", "1/1").split("/"))
"""Which part of the test files to read, counted from 1, and into how many parts they are divided: see ``.ci/run --shard``."""


@cache
def _in_core(path: Path) -> bool:
    return path.parent == HERE or any(path.is_relative_to(HERE / folder) for folder in CORE)


SMOKE = {
    "test_core.py",
    "test_errors.py",
    "test_face.py",
    "adapters/test_limited.py",
    "checking/test_statistic.py",
    "cli/test_endings.py",
    "durable/test_files.py",
    "durable/test_guard.py",
    "foundation/test_encoding.py",
    "foundation/test_references.py",
    "foundation/test_seeding.py",
    "foundation/test_terminal.py",
    "policies/test_scripted.py",
    "registry/test_registry.py",
    "rollouts/test_episode.py",
    "suite/games/test_guess_the_number.py",
    "testing/test_plugin.py",
    "trajectory/test_calls.py",
    "trajectory/test_segments.py",
    "trajectory/test_trajectory.py",
    "wrappers/test_wrappers.py",
}
"""Test files of the group ``smoke``: the core, without extras, in under a minute."""


@cache
def _in_smoke(path: Path) -> bool:
    return path.is_relative_to(HERE) and path.relative_to(HERE).as_posix() in SMOKE


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave unread the other files in ``pytest -m smoke``, and those of other shards: reading takes longer than some groups."""
    if not collection_path.match("test_*.py"):
        return None
    if config.option.markexpr == "smoke":
        return None if _in_smoke(collection_path) else True
    name = collection_path.relative_to(HERE).as_posix()
    return None if zlib.crc32(name.encode()) % SHARDS == SHARD - 1 else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the group ``smoke``, and the slow tests of the core, which are in the gate."""
    for item in items:
        if not item.get_closest_marker("slow"):
            if _in_smoke(item.path):
                item.add_marker("smoke")
        elif _in_core(item.path):
            item.add_marker("gate")


if __name__ == "__main__":  # what .ci/run --all measures the coverage of
    print(*(f"tests/{folder}" for folder in CORE), *sorted(f"tests/{file.name}" for file in HERE.glob("test_*.py")), sep="\n")
