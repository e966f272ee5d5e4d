"""The file of a study: arms × environments × seeds, at a fixed budget.

A study is a folder with a ``study.toml``; the results stand beside it, in ``runs``::

    question = "Which method finds binary search?"
    seeds = [0, 1, 2]
    held_out = 500

    [environments.guess]
    recipe = "cpu/guess"

    [arms]
    ReBN = ["advantage.method=rebn"]
    GRPO = ["advantage.method=grpo"]

An arm is a list of overrides of the recipe, in the words of ``palestra train``. An override may name code of your own
(``advantage.method=my_package:scaled``). All runs of an environment have the same number of steps and episodes, unless an arm
changes it.
"""

import re
import tomllib
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from palestra.errors import UsageError

__all__ = ["STUDY", "ArmPair", "Cell", "Study", "StudyEnvironment", "load_study"]

STUDY = "study.toml"

MEASURES = ("success", "reward", "turns")
"""What is measured on every held-out task."""

PLAYERS = ("random", "oracle")

_Count = Annotated[int, msgspec.Meta(ge=1)]


class StudyEnvironment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment of a study: a recipe, and what differs from it."""

    recipe: str
    """A shipped recipe, such as ``cpu/guess``, or a TOML file relative to the study's folder."""
    overrides: tuple[str, ...] = ()
    held_out: _Count | None = None
    """Tasks of an evaluation; by default the study's number."""
    optimum: dict[str, float] = {}
    """The score of a perfect player by measure, where it is known."""
    by_observation: bool = False
    """Whether tasks with the same first observation are one task, because there are fewer questions than held-out tasks."""


class ArmPair(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two arms to compare after training, paired by seed and task."""

    first: str
    second: str
    measure: str = "success"


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a model may spend on a held-out task, to see how its score depends on it, before and after training."""

    turns: tuple[_Count, ...] = ()
    """Limits of turns. The limit of the environment holds as well."""
    samples: _Count = 1
    """Episodes of each task. The score of k samples is the best of k of them."""


class Cell(NamedTuple):
    """One run of a study."""

    environment: str
    arm: str
    seed: int

    @property
    def name(self) -> str:
        """The run's place in the folders of the study, without suffix."""
        return f"{self.place}/{_plain(self.arm)}-{self.seed}"

    @property
    def place(self) -> str:
        """The environment as the name of a file or folder."""
        return _plain(self.environment)

    def __str__(self) -> str:
        return f"{self.environment}, {self.arm}, seed {self.seed}"


class Study(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A question, and the runs that answer it."""

    question: str
    environments: dict[str, StudyEnvironment]
    seeds: tuple[int, ...]
    held_out: _Count
    """Tasks on which every run is evaluated before the first step and after the last."""
    arms: dict[str, tuple[str, ...]]
    """Name → overrides."""
    measure: str = "success"
    """The measure that the tables compare."""
    curves: tuple[str, ...] = ("success", "turns", "reward", "entropy")
    """Metrics of training that the figure shows."""
    players: tuple[str, ...] = ()
    """Players that play the held-out tasks once, for comparison: ``random`` and ``oracle``."""
    compare: tuple[ArmPair, ...] = ()
    overrides: tuple[str, ...] = ()
    """Overrides of every run, before those of the environment and the arm."""
    reach: float | None = None
    """A value of ``measure`` in training: the page shows after how many steps and seconds each run reaches it."""
    equal_seconds: str = ""
    """A curve, such as ``evaluation/score``: the page shows its value in both arms of a pair when the faster one had ended."""
    budgets: Budgets | None = None
    """Evaluations with other budgets at test time, before training and after it."""
    chosen: str = ""
    """How the settings were chosen, with every setting that was tried. The page prints it."""

    def __post_init__(self) -> None:
        for name, values in (("environments", self.environments), ("arms", self.arms), ("seeds", self.seeds)):
            if not values:
                raise ValueError(f"{name} is empty")
        _check_names("environments", self.environments)
        _check_names("arms", self.arms)
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds names a seed twice")
        named = [arm for pair in self.compare for arm in (pair.first, pair.second)]
        _check_known("measure", [self.measure, *(pair.measure for pair in self.compare)], MEASURES)
        _check_known("compare", named, list(self.arms))
        _check_known("players", self.players, PLAYERS)
        if self.equal_seconds and not self.compare:
            raise ValueError("equal_seconds is about the pairs in compare, which is empty")
        for key, value in (("budgets", self.budgets), ("reach", self.reach)):
            if value is not None and self.measure == "turns":
                raise ValueError(f'{key} is about scores: set measure to "success" or "reward"')

    def cells(self) -> Iterator[Cell]:
        """Every run: seed by seed, so that a study that is stopped early has complete comparisons."""
        for seed in self.seeds:
            for environment in self.environments:
                for arm in self.arms:
                    yield Cell(environment, arm, seed)

    def overrides_of(self, cell: Cell) -> list[str]:
        """The overrides of the recipe for one run, in the order in which they are applied."""
        return [f"seed={cell.seed}", *self.overrides, *self.environments[cell.environment].overrides, *self.arms[cell.arm]]

    def held_out_of(self, environment: str) -> int:
        """The number of held-out tasks of ``environment``."""
        return self.environments[environment].held_out or self.held_out


def load_study(folder: str | Path) -> Study:
    """Read the ``study.toml`` in ``folder``.

    Raises:
        UsageError: There is none, or a key or value in it is wrong. The message names the key.
    """
    path = Path(folder) / STUDY
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Study)
    except OSError as error:
        raise UsageError(f"{folder} is not a study: cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from None


def _plain(name: str) -> str:
    return re.sub(r"[^\w.+=-]", "", name)


def _check_names(key: str, names: Collection[str]) -> None:
    """Names become names of files, so they must differ in letters and digits."""
    plain = {_plain(name) for name in names}
    if "" in plain or len(plain) < len(names):
        raise ValueError(f"{key}: names need letters or digits, and must differ in them: {', '.join(names)}")


def _check_known(key: str, named: Sequence[str], offered: Sequence[str]) -> None:
    for name in named:
        if name not in offered:
            raise ValueError(f'{key} names "{name}"; there is {", ".join(offered)}')
