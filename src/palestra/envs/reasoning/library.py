"""reasoning-gym, behind one door: a question for a seed, and a score for an answer.

Three things are put right here. *Seeds*: the library's item *i* under seed *s* is item *i - 1* under seed *s + 1*, so drawing
by index repeats questions from seed to seed; here every task has a seed of its own and takes item 0. *Determinism*: some
generators draw from sets of texts, whose order changes from process to process, or from the global generators; the sets are
put in order and the generators are seeded and given back. *Safety*: some scorers call ``eval`` on the model's answer, others
hand it to sympy, which does; the first get ``literal_eval`` under that name, the second see nothing but formulas. An answer
that is too long, or asks a scorer to count to a billion, scores nothing.
"""

import ast
import copy
import random
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np

from palestra.envs.reasoning.formulas import is_formula
from palestra.errors import UsageError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # syntax warnings of a dependency, at its first import
    import reasoning_gym
    from reasoning_gym import factory
    from reasoning_gym.composite import DatasetSpec

__all__ = ["SEEDS", "Entry", "curriculum", "draw", "generator_names", "score", "settings", "worth_asking"]

SEEDS = 2**32 - 1
"""Seeds run from 0 to this: NumPy's old generator, which one of the library's uses, knows no more."""

LONGEST_ANSWER = 50_000
"""Characters of an answer that are scored. The longest right one seen has under 11,000."""

Entry = dict[str, Any]
"""A question, its answer (``None`` where there are many) and what the scorer needs to know."""

_BORN_WITH_QUESTIONS = frozenset({"acre", "composite", "gsm_symbolic", "list_functions"})
"""Generators that draw when they are built. All others are built once and given a new seed for each task."""

_FORMULAS = frozenset({"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"})
"""Generators whose scorer hands the answer to sympy, which evaluates it."""

_COUNTS = frozenset({"rubiks_cube", "rush_hour"})
"""Generators whose scorer does as often as the answer says."""

_REMEMBERED = 256
"""Questions."""

_lock = threading.RLock()
_drawn: dict[tuple[str, str, int], Entry] = {}


# ------------------------------------------------------------------------------------------------------------- repairs


def _silent(*_: object, **__: object) -> None:
    """Takes the place of ``print`` in the library's modules: standard output is not theirs."""


def _repair() -> None:
    """Shadow builtins in the library's own modules, where it uses them in ways that we cannot have."""
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym.") and module is not None:
            module.__dict__["print"] = _silent
    for name in ("algorithmic.string_insertion", "algorithmic.spiral_matrix", "algorithmic.binary_matrix", "games.n_queens"):
        sys.modules[f"reasoning_gym.{name}"].__dict__["eval"] = ast.literal_eval
    # Sets of squares that are walked through: as tuples in order they compare and hash as well.
    sys.modules["reasoning_gym.games.knight_swap"].__dict__["frozenset"] = lambda items: tuple(sorted(items))
    monomials = sys.modules["reasoning_gym.algebra.polynomial_multiplication"].__dict__
    unordered = monomials["itermonomials"]
    monomials["itermonomials"] = lambda *args: sorted(unordered(*args), key=str)


_repair()


class _Letters(tuple[str, ...]):
    """An alphabet in order, from which letters can be taken away as from a set."""

    __slots__ = ()

    def __sub__(self, others: "set[str]") -> "_Letters":
        return _Letters(letter for letter in self if letter not in others)


def _in_order(dataset: Any) -> Any:
    """Put what the data set will draw from into an order of its own."""
    if isinstance(getattr(dataset, "letters", None), set):
        dataset.letters = _Letters(sorted(dataset.letters))
    if hasattr(dataset, "_task_ids"):
        dataset._task_ids.sort()
    for graph in getattr(dataset, "word_graphs", {}).values():
        graph.update({word: sorted(neighbors) for word, neighbors in graph.items()})
    return dataset


@contextmanager
def _generators_seeded(seed: int) -> Iterator[None]:
    """The global generators, seeded for the length of the block and then given back as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % (SEEDS + 1))
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


# ------------------------------------------------------------------------------------------------------------ questions


def generator_names() -> list[str]:
    """What the installed library has."""
    return sorted(factory.DATASETS)


def curriculum(name: str) -> dict[str, list[Any]]:
    """The knobs of ``name`` and their values from easy to hard; empty where the library has none."""
    if not factory.has_curriculum(name):
        return {}
    return {knob: list(attribute.levels) for knob, attribute in factory.create_curriculum(name).attributes.items()}


def settings(name: str, level: int | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The generator's own settings: those of ``level`` of its curriculum, and over them ``config``."""
    if level is None:
        return dict(config)
    if not factory.has_curriculum(name):
        raise UsageError(f'"rg:{name}" has no curriculum: set its parameters one by one instead of level={level}')
    ladder = factory.create_curriculum(name)
    highest = max(len(attribute.levels) for attribute in ladder.attributes.values()) - 1
    if not 0 <= level <= highest:
        raise UsageError(f'"rg:{name}" has levels 0 to {highest}, got level={level}')
    ladder.set_global_level(level)
    chosen = vars(ladder.generate_configuration())
    return {key: value for key, value in chosen.items() if key not in ("seed", "size")} | dict(config)


@dataclass(frozen=True)
class _Recipe:
    """Which data set to build."""

    name: str
    config: bytes
    """JSON of the settings that JSON knows."""


def draw(name: str, config: Mapping[str, Any], seed: int) -> Entry:
    """The question that belongs to ``seed``. The last ones are remembered: a group of episodes shares a task."""
    key = (name, repr(sorted(config.items())), seed)
    with _lock:
        if key not in _drawn:
            while len(_drawn) >= _REMEMBERED:
                del _drawn[next(iter(_drawn))]
            _drawn[key] = _draw(name, config, seed)
        return copy.deepcopy(_drawn[key])


def _draw(name: str, config: Mapping[str, Any], seed: int) -> Entry:
    with _generators_seeded(seed):
        dataset = _dataset(name, config, seed)
        dataset.seed = dataset.config.seed = seed
        entry: Entry = dataset[0]
        return entry


def score(name: str, config: Mapping[str, Any], entry: Entry, answer: str) -> float:
    """What the generator's own scorer gives for ``answer``, between 0 and 1. Whatever it stumbles over is worth nothing."""
    if not _worth_scoring(name, answer, entry):
        return 0.0
    with _lock, _generators_seeded(0):
        try:
            given = float(_dataset(name, config, 0).score_answer(answer, entry))
        except Exception:  # an answer that the scorer cannot read; its exceptions are many
            return 0.0
    return min(max(given, 0.0), 1.0) if given == given else 0.0


def worth_asking(name: str, entry: Entry, answer: str) -> bool:
    """Whether ``answer``, the library's own, can be right and is not given away.

    It may leave an integral unsolved, or give only tautologies; and where nothing is to be inserted into a string, which is 19
    times out of 20, the answer is the string in the question, so that whoever copies it wins.
    """
    if name == "string_insertion":
        return bool(answer != entry["metadata"]["string"])
    if name == "propositional_logic":
        return score(name, {}, entry, answer) == 1.0
    return name != "intermediate_integration" or is_formula(answer)


def _worth_scoring(name: str, answer: str, entry: Entry) -> bool:
    if len(answer) > LONGEST_ANSWER:
        return False
    if name == "puzzle24" and sorted(re.findall(r"\d+", answer)) != sorted(map(str, entry["metadata"]["numbers"])):
        return False  # the library takes any four numbers that make 24, and so one answer for every task
    if name in _FORMULAS:
        return is_formula(answer)
    if name == "propositional_logic":
        return len(answer) < 1_000  # its reader looks at a formula once for every bracket
    if name in _COUNTS:
        return re.search(r"\d{3}", answer) is None
    return True


def _dataset(name: str, config: Mapping[str, Any], seed: int) -> Any:
    if name in _BORN_WITH_QUESTIONS:
        return _built(name, config, seed)
    recipe = _Recipe(name, msgspec.json.encode(config, order="sorted"))
    if msgspec.json.decode(recipe.config) != config:  # objects that JSON does not know: good for one use
        return _built(name, config, seed)
    return _kept(recipe)


@lru_cache(maxsize=256)
def _kept(recipe: _Recipe) -> Any:
    return _built(recipe.name, msgspec.json.decode(recipe.config), 0)


def _built(name: str, config: Mapping[str, Any], seed: int) -> Any:
    config = dict(config)
    if name == "composite":
        parts = config.pop("datasets", ())
        config["datasets"] = [DatasetSpec(**part) if isinstance(part, Mapping) else part for part in parts]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # files that a dependency leaves to the garbage collector
            return _in_order(reasoning_gym.create_dataset(name, **{"size": 1, **config, "seed": seed}))
    except (TypeError, AssertionError, ValueError) as error:
        raise UsageError(f'"rg:{name}" does not take {config}: {error}') from None
