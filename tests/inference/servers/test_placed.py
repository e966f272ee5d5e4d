"""The engine that asks replicas: which one, and under which name for the context there."""

import os

import pytest

from palestra.core import EngineSession
from palestra.inference.servers.placed import Replicas


def test_names_of_contexts_are_unique_across_objects_and_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: 7)  # as in containers, each with a process table of its own
    names = set()
    for _ in range(100):
        replicas = Replicas([None, None], 100, None)
        names.add(replicas._place(EngineSession())[1])
        del replicas  # the next object may have its address
    assert len(names) == 100


def test_a_context_stays_with_its_replica() -> None:
    replicas, session = Replicas([None, None], 100, None), EngineSession()
    first = replicas._place(session)
    assert replicas._place(None)[0] == 1
    assert replicas._place(session) == first
