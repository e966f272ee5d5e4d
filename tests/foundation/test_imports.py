"""Imports while a command runs: a Ctrl-C that falls into one is not lost."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palestra.foundation.imports import import_uninterrupted
from palestra.foundation.references import resolve

SWALLOWS = """
import signal

try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
done = True
"""


@pytest.fixture
def swallowing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module that swallows the Ctrl-C of its import, as modules compiled by Cython do."""
    (tmp_path / "swallowing_module.py").write_text(SWALLOWS)
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield "swallowing_module"
    signal.signal(signal.SIGINT, before)
    sys.modules.pop("swallowing_module", None)


def test_a_ctrl_c_that_falls_into_an_import_is_raised_after_it(swallowing: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        import_uninterrupted(swallowing)
    assert sys.modules[swallowing].done is True
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert import_uninterrupted(swallowing) is sys.modules[swallowing]


def test_so_it_is_in_the_import_of_a_reference(swallowing: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        resolve(f"{swallowing}:done")


def test_another_handler_stays_and_gets_the_signal(swallowing: str) -> None:
    got: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: got.append(number))
    assert import_uninterrupted(swallowing).done is True
    assert got == [signal.SIGINT]
