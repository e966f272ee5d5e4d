"""The child process: ``python -m palestra.checking.replay`` plays the tasks of an ``Order`` and reports their frames.

It reads the ``Order`` as JSON from standard input and writes an ``Elsewhere`` as JSON to standard output. What the environment
prints goes to standard error.
"""

import os
import sys

from palestra import registry
from palestra.checking.elsewhere import Elsewhere, Order, Recipe
from palestra.checking.shelter import Shelter
from palestra.checking.subject import Subject
from palestra.errors import UnknownEnv
from palestra.foundation.encoding import decode_json, encode_json
from palestra.foundation.references import load_main, resolve

__all__ = ["carry_out", "main"]


def carry_out(order: Order) -> Elsewhere:
    """Play the tasks of ``order`` and return their frames."""
    if order.main_path is not None:
        load_main(order.main_path)
    try:
        spec = registry.spec(order.id)
    except UnknownEnv:
        if order.recipe is None:
            return Elsewhere(unknown=True)
        _register(order.id, order.recipe)
        spec = registry.spec(order.id)
    subject = Subject(spec, tuple(task for task, _ in order.plays), order.seed, Shelter(spec.id, order.call_seconds))
    return Elsewhere([list(subject.play(task, actor).frames) for task, actor in order.plays])


def _register(id: str, recipe: Recipe) -> None:
    wrappers = tuple(resolve(wrapper) for wrapper in recipe.wrappers)
    registry.register(id, recipe.entry, kwargs=recipe.kwargs, wrappers=wrappers, max_turns=recipe.max_turns)


def main() -> None:
    """Read the order, carry it out, and write the answer."""
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    seen = carry_out(decode_json(sys.stdin.buffer.read(), Order))
    with os.fdopen(answer, "wb") as out:
        out.write(encode_json(seen))


if __name__ == "__main__":
    main()
