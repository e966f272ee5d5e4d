"""Plays the same tasks in other processes: new interpreters, each with a hash seed of its own.

A child process runs ``palestra.checking.replay``. It reads one JSON document from standard input and writes one to standard
output. All children run at the same time, and each plays all tasks.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

import msgspec

from palestra.checking.subject import Subject
from palestra.errors import SchemaError, UsageError
from palestra.foundation.encoding import decode_json, encode_json
from palestra.foundation.references import reference_of, search_path
from palestra.registry import EnvSpec
from palestra.sandbox.procfs import cpu_seconds, descendants_of
from palestra.trajectory import Task

__all__ = ["HASH_SEEDS", "Elsewhere", "Order", "Recipe", "play_elsewhere"]

HASH_SEEDS = (1, 2)
"""PYTHONHASHSEED of each child. This process normally has a random one."""

PATIENCE = 60.0
"""CPU seconds that a child may use, in addition to ten times the duration of the same episodes here."""

STANDSTILL = 10.0
"""The same limit by the clock, as a factor. On a busy machine, to import a large package takes minutes."""

_GLANCE = 1.0
"""Seconds between two looks at the CPU time of a child."""


class Recipe(msgspec.Struct, frozen=True):
    """How to register an environment again, by names that another process can import."""

    entry: str
    kwargs: dict[str, Any]
    wrappers: list[str]
    max_turns: int | None


class Order(msgspec.Struct, frozen=True):
    """The tasks that a child must play."""

    id: str
    recipe: Recipe | None
    """How to register an id that this process registered; ``None`` if that takes more than names and plain values."""
    main_path: str | None
    """The script to load first, if the class is defined in ``__main__``."""
    seed: int
    plays: list[tuple[Task, str]]
    """Tasks, each with the name of its player."""
    call_seconds: float
    """Seconds that one call may take."""


class Elsewhere(msgspec.Struct, frozen=True):
    """The answer of a child: the frames of each episode, or why there are none."""

    episodes: list[list[str]] = []
    error: str = ""
    unknown: bool = False
    """Whether the child neither knows the id nor has a recipe for it."""


def play_elsewhere(subject: Subject, plays: Sequence[tuple[Task, str]], seconds: float) -> list[Elsewhere]:
    """Let every child play ``plays``, which took ``seconds`` here; ``UsageError`` if others cannot import the class."""
    order = encode_json(_order(subject, plays))
    with ExitStack() as running:
        children = [running.enter_context(_child(order, hash_seed)) for hash_seed in HASH_SEEDS]
        return [_answer(child, PATIENCE + 10 * seconds) for child in children]


def _order(subject: Subject, plays: Sequence[tuple[Task, str]]) -> Order:
    in_script = getattr(subject.spec.factory(), "__module__", "") == "__main__"
    return Order(
        id=subject.spec.id,
        recipe=_recipe(subject.spec),
        main_path=_main_path() if in_script else None,
        seed=subject.seed,
        plays=list(plays),
        call_seconds=subject.shelter.seconds,
    )


def _recipe(spec: EnvSpec) -> Recipe | None:
    try:
        wrappers = [reference_of(wrapper) for wrapper in spec.wrappers]
        recipe = Recipe(spec.reference(), dict(spec.kwargs), wrappers, spec.max_turns)
        same = decode_json(encode_json(recipe), Recipe) == recipe
    except (UsageError, TypeError, ValueError):
        return None
    return recipe if same else None


def _main_path() -> str:
    path: str | None = getattr(sys.modules["__main__"], "__file__", None)
    if path is None:
        raise UsageError(
            "the class was typed into a notebook or a shell, where another process cannot import it; move it into a module"
        )
    return os.path.abspath(path)


@contextmanager
def _child(order: bytes, hash_seed: int) -> "Iterator[subprocess.Popen[bytes]]":
    with TemporaryFile() as incoming:  # a file instead of a pipe, so that no child waits until another has read its input
        incoming.write(order)
        incoming.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-P", "-m", "palestra.checking.replay"],
            stdin=incoming,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path()), "PYTHONHASHSEED": str(hash_seed)},
        )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _answer(child: "subprocess.Popen[bytes]", patience: float) -> Elsewhere:
    until = monotonic() + STANDSTILL * patience
    while True:
        try:
            out, complaints = child.communicate(timeout=_GLANCE)
            break
        except subprocess.TimeoutExpired:
            spent = sum(map(cpu_seconds, (child.pid, *descendants_of(child.pid))))
            if spent > patience or monotonic() > until:
                return Elsewhere(error=f"no answer within {STANDSTILL * patience:.0f} s and {patience:.0f} s of CPU time")
    try:
        return decode_json(out, Elsewhere)
    except SchemaError:
        last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Elsewhere(error=f"{last or 'no message'} (exit status {child.returncode})")
