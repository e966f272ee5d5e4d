"""The only access to reasoning-gym: a question for a seed, and a score for an answer.

This module repairs four things. *Seeds*: the library's item *i* under seed *s* is item *i - 1* under seed *s + 1*, so drawing
by index repeats questions from seed to seed; here every task has its own seed and takes item 0. *Determinism*: some
generators draw from sets of texts, whose order changes from process to process, or from the global generators; here the sets
are sorted, and the global generators are seeded and restored. *Safety*: some scorers call ``eval`` on the model's answer, or
pass it to sympy, which does; here the first get ``literal_eval`` under that name, and the second see only formulas. An answer
that is too long, or makes a scorer count to a billion, scores nothing. *Scores*: if the library's scorer rewards answers that
solve nothing, ``scorers`` replaces it.
"""

import ast
import copy
import math
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

from palestra.errors import UsageError
from palestra.suite.reasoning.formulas import is_formula
from palestra.suite.reasoning.scorers import SCORERS, is_finite

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # syntax warnings of a dependency, at its first import
    import reasoning_gym
    from reasoning_gym import factory
    from reasoning_gym.composite import DatasetSpec

__all__ = ["SEEDS", "Entry", "curriculum", "draw", "generator_names", "generator_of", "score", "settings", "worth_asking"]

SEEDS = 2**32 - 1
"""Seeds run from 0 to this: NumPy's old generator, which one generator uses, accepts no more."""

LONGEST_ANSWER = 50_000
"""Most characters of an answer that is scored. The longest right one seen has under 11,000."""

Entry = dict[str, Any]
"""A question, its answer (``None`` if there are many) and what the scorer needs."""

_BORN_WITH_QUESTIONS = frozenset({"acre", "composite", "gsm_symbolic", "list_functions"})
"""Generators that draw when they are built. All others are built once and get a new seed per task."""

_FORMULAS = frozenset({"countdown", "intermediate_integration", "polynomial_multiplication", "puzzle24", "simple_integration"})
"""Generators whose scorer passes the answer to sympy, which evaluates it."""

_COUNTS = frozenset({"rubiks_cube", "rush_hour"})
"""Generators whose scorer loops as often as the answer asks."""

_REMEMBERED = 256
"""Questions."""

_lock = threading.RLock()
_drawn: dict[tuple[str, str, int], Entry] = {}


# ------------------------------------------------------------------------------------------------------------- repairs


def _silent(*_: object, **__: object) -> None:
    """Replace ``print`` in the library's modules, which must not write to standard output."""


def _repair() -> None:
    """Replace builtins in the library's own modules, where it uses them in unsafe or random ways."""
    for name, module in list(sys.modules.items()):
        if name.startswith("reasoning_gym.") and module is not None:
            module.__dict__["print"] = _silent
    for name in ("algorithmic.string_insertion", "algorithmic.spiral_matrix", "algorithmic.binary_matrix", "games.n_queens"):
        sys.modules[f"reasoning_gym.{name}"].__dict__["eval"] = ast.literal_eval
    # Sets of squares that are iterated over: sorted tuples compare and hash as well.
    sys.modules["reasoning_gym.games.knight_swap"].__dict__["frozenset"] = lambda items: tuple(sorted(items))
    monomials = sys.modules["reasoning_gym.algebra.polynomial_multiplication"].__dict__
    unordered = monomials["itermonomials"]
    monomials["itermonomials"] = lambda *args: sorted(unordered(*args), key=str)


_repair()


class _Letters(tuple[str, ...]):
    """A sorted alphabet from which letters can be removed as from a set."""

    __slots__ = ()

    def __sub__(self, others: "set[str]") -> "_Letters":
        return _Letters(letter for letter in self if letter not in others)


def _in_order(dataset: Any) -> Any:
    """Sort what the data set will draw from."""
    if isinstance(getattr(dataset, "letters", None), set):
        dataset.letters = _Letters(sorted(dataset.letters))
    if hasattr(dataset, "_task_ids"):
        dataset._task_ids.sort()
    for graph in getattr(dataset, "word_graphs", {}).values():
        graph.update({word: sorted(neighbors) for word, neighbors in graph.items()})
    return dataset


@contextmanager
def _generators_seeded(seed: int) -> Iterator[None]:
    """Seed the global generators for the length of the block, and then restore them."""
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
    """Return the generators of the installed library."""
    return sorted(factory.DATASETS)


def curriculum(name: str) -> dict[str, list[Any]]:
    """Return the parameters of ``name`` and their values from easy to hard; empty if the library has none."""
    if not factory.has_curriculum(name):
        return {}
    return {knob: list(attribute.levels) for knob, attribute in factory.create_curriculum(name).attributes.items()}


def settings(name: str, level: int | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generator's settings: those of ``level`` of its curriculum, overridden by ``config``."""
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
    """The name and settings of a data set."""

    name: str
    config: bytes
    """The settings as JSON, as far as JSON can hold them."""


def draw(name: str, config: Mapping[str, Any], seed: int) -> Entry:
    """Return the question of ``seed``. Recent ones are cached: a group of episodes shares a task."""
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
    """Return the score of ``answer``, between 0 and 1. An answer on which the scorer fails scores 0."""
    drawn_by = generator_of(name, entry)
    if not _worth_scoring(drawn_by, answer, entry):
        return 0.0
    with _lock, _generators_seeded(0):
        try:
            own = SCORERS.get(drawn_by)
            given = own(answer, entry) if own else float(_dataset(name, config, 0).score_answer(answer, entry))
        except Exception:  # noqa: BLE001 - the scorer cannot read the answer; it may raise anything
            return 0.0
    return min(max(given, 0.0), 1.0) if math.isfinite(given) else 0.0


def generator_of(name: str, entry: Entry) -> str:
    """Return the generator that drew ``entry``: ``name``, or one of those that ``composite`` mixes."""
    return str(entry["metadata"]["source_dataset"]) if name == "composite" else name


def worth_asking(name: str, entry: Entry, answer: str) -> bool:
    """Return whether ``answer``, the library's own, can be right and is not given away by the question.

    The library may leave an integral unsolved, or give only tautologies. If nothing is to be inserted into a string, which
    happens 19 times out of 20, or no rule changes it, the answer is the string in the question, so copying it would win.
    """
    if name in ("string_insertion", "string_manipulation"):
        return bool(answer != entry["metadata"]["string"])
    if name == "propositional_logic":
        return score(name, {}, entry, answer) == 1.0
    return name != "intermediate_integration" or is_formula(answer)


def _worth_scoring(name: str, answer: str, entry: Entry) -> bool:
    if len(answer) > LONGEST_ANSWER or not is_finite(answer, str(entry["answer"])):
        return False
    if name == "puzzle24" and sorted(re.findall(r"\d+", answer)) != sorted(map(str, entry["metadata"]["numbers"])):
        return False  # the library accepts any four numbers that make 24, so one answer would win every task
    if name in _FORMULAS:
        return is_formula(answer)
    if name == "propositional_logic":
        return len(answer) < 1_000  # its parser reads the formula once per bracket
    if name in _COUNTS:
        return re.search(r"\d{3}", answer) is None
    return True


def _dataset(name: str, config: Mapping[str, Any], seed: int) -> Any:
    if name in _BORN_WITH_QUESTIONS:
        return _built(name, config, seed)
    recipe = _Recipe(name, msgspec.json.encode(config, order="sorted"))
    if msgspec.json.decode(recipe.config) != config:  # it holds objects that JSON cannot: use the data set once
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
            warnings.simplefilter("ignore")  # a dependency leaves files to the garbage collector
            return _in_order(reasoning_gym.create_dataset(name, **{"size": 1, **config, "seed": seed}))
    except (TypeError, AssertionError, ValueError) as error:
        raise UsageError(f'"rg:{name}" does not take {config}: {error}') from None
