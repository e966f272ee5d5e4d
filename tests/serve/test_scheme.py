"""Ids of the form ``scheme:place#id``: what is registered, and what is not imported for it."""

import subprocess
import sys

import pytest

from palestra import registry
from palestra.errors import UsageError
from palestra.registry import register_scheme, spec


@pytest.fixture(autouse=True)
def _forgotten_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_schemes", dict(registry._schemes))


def test_tasks_bear_the_name_of_the_id_and_not_of_the_place() -> None:
    known = spec("remote:http://host:1#game:Sudoku-v0-easy")
    assert known.id == "game:Sudoku-v0-easy"
    assert known.kwargs == {"address": "http://host:1#game:Sudoku-v0-easy"}


def test_anybody_may_add_a_scheme_by_reference() -> None:
    register_scheme("mine", "no.such.module:Factory")
    assert spec("mine:anywhere#x").entry == "no.such.module:Factory"
    assert spec("mine:anywhere").id == "mine:anywhere"
    with pytest.raises(UsageError, match="one word"):
        register_scheme("not one:", "no.such.module:Factory")


def test_nothing_of_the_network_is_imported_for_it() -> None:
    code = (
        "import sys, palestra, palestra.registry as r; r.spec('remote:http://h:1#x');"
        "print([m for m in ('palestra.serve', 'websockets', 'uvicorn', 'starlette') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONPATH": "src"})
    assert done.stdout.strip() == "[]"
