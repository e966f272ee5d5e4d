"""Playing the same tasks in other processes: new interpreters, each with a hash seed of its own.

The child is ``palestra.checking.replay``. It gets one JSON document on its standard input and answers with one on its standard
output. All children run at once, each plays all tasks.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from tempfile import TemporaryFile
from typing import Any

import msgspec

from palestra.checking.subject import Subject
from palestra.encoding import decode_json, encode_json
from palestra.errors import SchemaError, UsageError
from palestra.references import reference_of
from palestra.registry import EnvSpec
from palestra.trajectory import Task

__all__ = ["HASH_SEEDS", "Elsewhere", "Order", "Recipe", "play_elsewhere"]

HASH_SEEDS = (1, 2)
"""Of the children. This process has another one, drawn by Python unless it was told."""

PATIENCE = 60.0
"""Seconds a child gets beyond ten times what the same episodes took here."""


class Recipe(msgspec.Struct, frozen=True):
    """How to register an environment again, by names that another process can find."""

    entry: str
    kwargs: dict[str, Any]
    wrappers: list[str]
    max_turns: int | None


class Order(msgspec.Struct, frozen=True):
    """What a child is to do: play these tasks."""

    id: str
    recipe: Recipe | None
    """For an id that was registered by hand; none if it needs more than names and plain values."""
    main_path: str | None
    """The script to load first where the class is defined in ``__main__``."""
    seed: int
    plays: list[tuple[Task, str]]
    """Tasks, each with the name of the player."""


class Elsewhere(msgspec.Struct, frozen=True):
    """What a child saw: the frames of each episode, or why there are none."""

    episodes: list[list[str]] = []
    error: str = ""
    unknown: bool = False
    """The child does not know the id, and has no recipe for it."""


def play_elsewhere(subject: Subject, plays: Sequence[tuple[Task, str]], seconds: float) -> list[Elsewhere]:
    """Have every child play ``plays``, which took ``seconds`` here. ``UsageError`` if no other process could."""
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
        raise UsageError("it was typed into a notebook or a shell, which another process cannot see; move it into a module")
    return os.path.abspath(path)


@contextmanager
def _child(order: bytes, hash_seed: int) -> "Iterator[subprocess.Popen[bytes]]":
    # The child imports what this process can import: the same search path, scripts' folders included.
    search_path = os.pathsep.join(part or os.getcwd() for part in sys.path)
    with TemporaryFile() as incoming:  # a file and not a pipe, so that no child waits for another to be served
        incoming.write(order)
        incoming.seek(0)
        child = subprocess.Popen(
            [sys.executable, "-m", "palestra.checking.replay"],
            stdin=incoming,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": search_path, "PYTHONHASHSEED": str(hash_seed)},
        )
    with child:
        try:
            yield child
        finally:
            child.kill()


def _answer(child: "subprocess.Popen[bytes]", timeout: float) -> Elsewhere:
    try:
        out, complaints = child.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        return Elsewhere(error=f"nothing within {timeout:.0f} s")
    try:
        return decode_json(out, Elsewhere)
    except SchemaError:
        last = complaints.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return Elsewhere(error=f"{last or 'nothing'} (exit status {child.returncode})")
